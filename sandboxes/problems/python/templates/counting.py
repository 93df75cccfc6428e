"""Combinatorics and probability."""

from fractions import Fraction
from math import comb, factorial
from random import Random

from sandboxes.problems.python.templates.base import Draft, Template, draft


def paths(draw: Random) -> Draft:
    w, h = draw.randint(5, 9), draw.randint(5, 9)
    x, y = draw.randint(1, w - 1), draw.randint(1, h - 1)
    free = comb(w + h, w) - comb(x + y, x) * comb(w + h - x - y, w - x)
    return draft(
        f"""On a grid one moves from (0, 0) to ({w}, {h}) in steps of one to the right or one up. How many ways do not pass
        through ({x}, {y})?""",
        free,
        f"""
        ways = {{(0, 0): 1}}
        for x in range({w} + 1):
            for y in range({h} + 1):
                if (x, y) == ({x}, {y}):
                    ways[x, y] = 0
                elif (x, y) != (0, 0):
                    ways[x, y] = ways.get((x - 1, y), 0) + ways.get((x, y - 1), 0)
        """,
        f"print(ways[{w}, {h}])",
    )


def change(draw: Random) -> Draft:
    coins, n = sorted(draw.sample((2, 3, 5, 7, 10, 20, 25), 3)), draw.randint(60, 140)
    ways = [1] + [0] * n
    for coin in coins:
        for total in range(coin, n + 1):
            ways[total] += ways[total - coin]
    a, b, c = coins
    return draft(
        f"In how many ways can {n} cents be paid with coins of {a}, {b} and {c} cents, if there are enough of each?",
        ways[n],
        f"""
        count = 0
        for k in range({n} // {c} + 1):
            for j in range(({n} - k * {c}) // {b} + 1):
                if ({n} - k * {c} - j * {b}) % {a} == 0:
                    count += 1
        print(count)
        """,
    )


def committee(draw: Random) -> Draft:
    women, men, seats = draw.randint(4, 7), draw.randint(4, 7), draw.randint(4, 5)
    least = 2
    return draft(
        f"""From {women} women and {men} men a committee of {seats} is chosen, with at least {least} women and at least one man.
        In how many ways?""",
        sum(comb(women, k) * comb(men, seats - k) for k in range(least, seats)),
        f"""
        from itertools import combinations
        people = ["w"] * {women} + ["m"] * {men}
        chosen = combinations(range(len(people)), {seats})
        kinds = [[people[i] for i in group] for group in chosen]
        """,
        f'print(sum(kind.count("w") >= {least} and "m" in kind for kind in kinds))',
    )


def dice(draw: Random) -> Draft:
    n, sides = draw.randint(2, 3), draw.choice((6, 8, 10))
    target = draw.randint(n + 2, n * sides - 2)
    ways = {0: 1}
    for _ in range(n):
        ways = {t: sum(ways.get(t - face, 0) for face in range(1, sides + 1)) for t in range(n * sides + 1)}
    return draft(
        f"""{n} fair dice, each with the sides 1 to {sides}, are thrown. What is the probability that their sum is at least
        {target}? Give a fraction.""",
        Fraction(sum(count for total, count in ways.items() if total >= target), sides**n),
        f"""
        from fractions import Fraction
        from itertools import product
        throws = list(product(range(1, {sides} + 1), repeat={n}))
        print(Fraction(sum(sum(t) >= {target} for t in throws), len(throws)))
        """,
    )


def no_neighbours(draw: Random) -> Draft:
    n = draw.randint(9, 13)
    k = draw.randint(2, (n - 1) // 2)
    return draft(
        f"How many strings of {n} binary digits have exactly {k} ones, no two of them next to each other?",
        comb(n - k + 1, k),
        f"""
        words = (format(i, "0{n}b") for i in range(2 ** {n}))
        print(sum(w.count("1") == {k} and "11" not in w for w in words))
        """,
    )


def balls(draw: Random) -> Draft:
    red, blue, taken = draw.randint(4, 9), draw.randint(4, 9), draw.randint(3, 4)
    k = draw.randint(1, taken - 1)
    return draft(
        f"""A bag holds {red} red and {blue} blue balls. {taken} are drawn without putting any back. What is the probability that
        exactly {k} of them are red? Give a fraction.""",
        Fraction(comb(red, k) * comb(blue, taken - k), comb(red + blue, taken)),
        f"""
        from fractions import Fraction
        from itertools import combinations
        bag = [1] * {red} + [0] * {blue}
        draws = [sum(d) for d in combinations(bag, {taken})]
        """,
        f"print(Fraction(draws.count({k}), len(draws)))",
    )


def fixed_points(draw: Random) -> Draft:
    n, k = draw.randint(4, 7), draw.randint(0, 4)
    moved = sum((-1) ** i * factorial(n - k) // factorial(i) for i in range(n - k + 1))
    return draft(
        f"{n} letters go at random into {n} addressed envelopes, one each. In how many ways are exactly {k} in their own?",
        comb(n, k) * moved,
        f"""
        from itertools import permutations
        print(sum(sum(i == v for i, v in enumerate(p)) == {k} for p in permutations(range({n}))))
        """,
    )


def shelves(draw: Random) -> Draft:
    n, boxes, empty = draw.randint(4, 7), draw.randint(3, 5), draw.randint(1, 2)
    used = boxes - empty
    filled = sum((-1) ** i * comb(used, i) * (used - i) ** n for i in range(used))
    return draft(
        f"""In how many ways can {n} different books be put on {boxes} shelves so that exactly {empty} of the shelves stay empty?
        The order on a shelf does not matter.""",
        comb(boxes, empty) * filled,
        f"""
        from itertools import product
        print(sum(len(set(p)) == {used} for p in product(range({boxes}), repeat={n})))
        """,
    )


TEMPLATES = (
    Template("counting/paths", "train", 0.4, paths),
    Template("counting/change", "train", 0.4, change),
    Template("counting/committee", "train", 0.4, committee),
    Template("counting/dice", "train", 0.4, dice),
    Template("counting/no-neighbours", "train", 0.5, no_neighbours),
    Template("counting/balls", "train", 0.45, balls),
    Template("counting/fixed-points", "eval", 0.55, fixed_points),
    Template("counting/shelves", "eval", 0.55, shelves),
)
