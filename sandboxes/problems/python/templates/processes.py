"""Simulation: what happens after many steps of a rule."""

from random import Random

from sandboxes.problems.python.templates.base import Draft, Template, draft

TURNS = {"L": 1j, "R": -1j}


def josephus(draw: Random) -> Draft:
    n, k = draw.randint(20, 90), draw.randint(4, 9)
    last = 0
    for size in range(2, n + 1):
        last = (last + k) % size
    return draft(
        f"""{n} people stand in a circle, numbered 1 to {n}. Counting from number 1, every {k}th person leaves until one is left.
        Which number is left?""",
        last + 1,
        f"""
        people = list(range(1, {n} + 1))
        at = 0
        while len(people) > 1:
            at = (at + {k} - 1) % len(people)
            people.pop(at)
        print(people[0])
        """,
    )


def generator(draw: Random) -> Draft:
    a, c, m, x, n = (
        *(draw.randint(11, 99) for _ in range(2)),
        draw.randint(500, 2000),
        draw.randint(2, 99),
        draw.randint(40, 400),
    )
    slope, shift, power_a, power_c, left = 1, 0, a, c, n  # repeated squaring of x -> a x + c
    while left:
        if left & 1:
            slope, shift = slope * power_a % m, (shift * power_a + power_c) % m
        power_a, power_c = power_a * power_a % m, (power_c * power_a + power_c) % m
        left >>= 1
    return draft(
        f"""A counter starts at {x}. In every step it is multiplied by {a}, {c} is added, and it is replaced by the remainder
        divided by {m}. What does it show after {n} steps?""",
        (slope * x + shift) % m,
        f"""
        x = {x}
        for _ in range({n}):
            x = (x * {a} + {c}) % {m}
        print(x)
        """,
    )


def robot(draw: Random) -> Draft:
    program = "".join(draw.choice("FFFLR") for _ in range(draw.randint(4, 7))) + draw.choice("LR") + "F"
    times = draw.randint(21, 180)
    place, heading = 0j, 1j
    for step in program:
        place, heading = (place + heading, heading) if step == "F" else (place, heading * TURNS[step])
    turn, end, spin = heading / 1j, 0j, 1 + 0j
    for _ in range(times):  # of whole programs, not of steps
        end, spin = end + place * spin, spin * turn
    return draft(
        f"""A robot at (0, 0) faces north. F moves it one ahead, L and R turn it left and right on the spot. It runs {program}
        {times} times. How far is it from (0, 0) then, as the sum of its steps east or west and north or south?""",
        int(abs(end.real) + abs(end.imag)),
        f"""
        x = y = 0
        dx, dy = 0, 1
        for step in "{program}" * {times}:
            if step == "F":
                x, y = x + dx, y + dy
            elif step == "L":
                dx, dy = -dy, dx
            else:
                dx, dy = dy, -dx
        """,
        "print(abs(x) + abs(y))",
    )


def collatz(draw: Random) -> Draft:
    low = draw.randint(50, 900)
    high = low + draw.randint(60, 200)
    known = {1: 0}

    def steps(n: int) -> int:
        if n not in known:
            known[n] = 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)
        return known[n]

    return draft(
        f"""From a whole number go to its half if it is even, else to three times it plus one, until 1 is reached. How many steps
        does the number between {low} and {high} (both included) that needs the most take?""",
        max(steps(n) for n in range(low, high + 1)),
        """
        def steps(n):
            count = 0
            while n != 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                count += 1
            return count
        """,
        f"print(max(steps(n) for n in range({low}, {high} + 1)))",
    )


def lockers(draw: Random) -> Draft:
    n, step = draw.randint(120, 600), draw.randint(2, 4)
    open_ = sum(len([d for d in range(1, k + 1, 1) if k % d == 0 and d % step]) % 2 for k in range(1, n + 1))
    return draft(
        f"""{n} lockers are closed. For every pass d from 1 to {n} that is not a multiple of {step}, each locker whose number is a
        multiple of d is opened if it is closed and closed if it is open. How many are open at the end?""",
        open_,
        f"""
        lockers = [False] * ({n} + 1)
        for d in range(1, {n} + 1):
            if d % {step}:
                for k in range(d, {n} + 1, d):
                    lockers[k] = not lockers[k]
        print(sum(lockers))
        """,
    )


def queue(draw: Random) -> Draft:
    wants = [draw.randint(1, 9) for _ in range(draw.randint(6, 10))]
    who = draw.randrange(len(wants))
    need = wants[who]
    taken = sum(min(w, need if i <= who else need - 1) for i, w in enumerate(wants))
    return draft(
        f"""People stand in a queue and want {", ".join(map(str, wants))} tickets, in this order. Each buys one ticket in one minute
        and goes to the end of the queue if more are wanted, else home. After how many minutes does the person who stood at place
        {who + 1} go home?""",
        taken,
        f"""
        from collections import deque
        line = deque(enumerate({wants}))
        minutes = 0
        gone = set()
        while {who} not in gone:
            person, left = line.popleft()
            minutes += 1
            if left > 1:
                line.append((person, left - 1))
            else:
                gone.add(person)
        """,
        "print(minutes)",
    )


def herd(draw: Random) -> Draft:
    rabbits, foxes, years = draw.randint(300, 900), draw.randint(10, 40), draw.randint(8, 20)
    up, eaten = draw.randint(15, 35), draw.randint(1, 3)
    r, f = rabbits, foxes
    for _ in range(years):
        r, f = max(0, r + r * up // 100 - eaten * f), f + (r // 200) - f // 10
    return draft(
        f"""There are {rabbits} rabbits and {foxes} foxes. Each year, from the numbers at its beginning: {up} % of the rabbits are
        born (rounded down) and every fox eats {eaten} rabbits, but there are never fewer than 0; one fox is born for every full
        200 rabbits, and one fox in ten dies (rounded down). How many animals are there after {years} years?""",
        r + f,
        f"""
        import math
        def year(rabbits, foxes):
            born, cubs = math.floor(rabbits * {up} / 100), math.floor(rabbits / 200)
            return max(0, rabbits + born - {eaten} * foxes), foxes + cubs - math.floor(foxes / 10)
        """,
        f"""
        state = ({rabbits}, {foxes})
        for _ in range({years}):
            state = year(*state)
        print(sum(state))
        """,
    )


TEMPLATES = (
    Template("processes/josephus", "train", 0.45, josephus),
    Template("processes/generator", "train", 0.35, generator),
    Template("processes/robot", "train", 0.5, robot),
    Template("processes/collatz", "train", 0.4, collatz),
    Template("processes/lockers", "train", 0.5, lockers),
    Template("processes/queue", "eval", 0.45, queue),
    Template("processes/herd", "eval", 0.6, herd),
)
