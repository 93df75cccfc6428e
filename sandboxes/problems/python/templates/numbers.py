"""Number theory: multiples, digits, divisors, congruences, primes."""

from math import gcd, isqrt, lcm
from random import Random

from sandboxes.problems.python.templates.base import Draft, Template, draft


def multiples(draw: Random) -> Draft:
    a, b, c = draw.sample((3, 4, 5, 6, 7, 8, 9, 11, 13), 3)
    n = draw.randint(800, 5000)
    either = n // a + n // b - n // lcm(a, b)
    also = n // lcm(a, c) + n // lcm(b, c) - n // lcm(a, b, c)
    return draft(
        f"How many whole numbers from 1 to {n} are divisible by {a} or by {b}, but not by {c}?",
        either - also,
        f"print(sum(1 for n in range(1, {n} + 1) if (n % {a} == 0 or n % {b} == 0) and n % {c}))",
    )


def lights(draw: Random) -> Draft:
    a, b, c = (draw.randint(6, 30) for _ in range(3))
    hours = draw.randint(2, 12)
    return draft(
        f"""Three lights flash together at midnight and then every {a}, {b} and {c} seconds. How often do all three flash
        together in the following {hours} hours, midnight not counted and the last second included?""",
        hours * 3600 // lcm(a, b, c),
        f"""
        times = [set(range(step, {hours} * 3600 + 1, step)) for step in ({a}, {b}, {c})]
        print(len(set.intersection(*times)))
        """,
    )


def last_digits(draw: Random) -> Draft:
    a, b, m = draw.randint(12, 99), draw.randint(300, 2000), draw.choice((1000, 997, 1009, 10_000))
    return draft(
        f"What is the remainder of {a} to the power of {b}, divided by {m}?",
        pow(a, b, m),
        f"""
        rest = 1
        for _ in range({b}):
            rest = rest * {a} % {m}
        print(rest)
        """,
    )


def digit_sum(draw: Random) -> Draft:
    n, s = draw.choice((999, 9999)), draw.randint(8, 20)
    ways = [1] + [0] * s
    for _ in range(len(str(n))):
        ways = [sum(ways[max(0, t - 9) : t + 1]) for t in range(s + 1)]
    return draft(
        f"How many whole numbers from 1 to {n} have the digit sum {s}?",
        ways[s],
        f"print(sum(1 for n in range(1, {n} + 1) if sum(map(int, str(n))) == {s}))",
    )


def congruences(draw: Random) -> Draft:
    p, q, r = draw.sample((7, 9, 11, 13, 16, 17), 3)
    x = draw.randint(50, p * q * r - 1)
    return draft(
        f"""What is the smallest positive whole number that leaves remainder {x % p} when divided by {p}, {x % q} when divided by
        {q}, and {x % r} when divided by {r}?""",
        x,
        f"""
        n = 1
        while (n % {p}, n % {q}, n % {r}) != ({x % p}, {x % q}, {x % r}):
            n += 1
        print(n)
        """,
    )


def primes_between(draw: Random) -> Draft:
    low = draw.randint(100, 1500)
    high = low + draw.randint(200, 900)
    sieve = [True] * (high + 1)
    for n in range(2, isqrt(high) + 1):
        if sieve[n]:
            sieve[n * n :: n] = [False] * len(sieve[n * n :: n])
    return draft(
        f"What is the sum of all prime numbers between {low} and {high}, both included where they are prime?",
        sum(n for n in range(low, high + 1) if sieve[n]),
        """
        def is_prime(n):
            return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))
        """,
        f"print(sum(n for n in range({low}, {high} + 1) if is_prime(n)))",
    )


def coprime(draw: Random) -> Draft:
    n = draw.randint(300, 4000)
    left, rest, d = n, n, 2
    while d * d <= rest:
        if rest % d == 0:
            left -= left // d
            while rest % d == 0:
                rest //= d
        d += 1
    if rest > 1:
        left -= left // rest
    return draft(
        f"How many whole numbers from 1 to {n} have no common divisor with {n} but 1?",
        left,
        f"""
        from math import gcd
        print(sum(gcd(k, {n}) == 1 for k in range(1, {n} + 1)))
        """,
    )


def divisors(draw: Random) -> Draft:
    n = draw.choice((360, 420, 504, 630, 720, 756, 792, 840, 924, 990)) * draw.choice((1, 2, 3, 5, 7, 11))
    total, rest, d = 1, n, 2
    while rest > 1:
        power = 1
        while rest % d == 0:
            rest //= d
            power = power * d + 1
        total *= power
        d += 1
    return draft(
        f"What is the sum of all positive divisors of {n}, {n} itself not counted?",
        total - n,
        f"""
        found = [d for d in range(1, {n}) if {n} % d == 0]
        print(len(found), sum(found))
        """,
        "print(sum(found))",
    )


def zeros(draw: Random) -> Draft:
    n, base, prime = draw.randint(40, 160), *draw.choice(((6, 3), (14, 7), (10, 5), (15, 5), (22, 11)))
    count, power = 0, prime
    while power <= n:
        count += n // power
        power *= prime
    return draft(
        f"With how many zeros does the factorial of {n} end when it is written in base {base}?",
        count,
        f"""
        from math import factorial
        value, zeros = factorial({n}), 0
        while value % {base} == 0:
            value //= {base}
            zeros += 1
        print(zeros)
        """,
    )


def fractions_between(draw: Random) -> Draft:
    n = draw.randint(20, 60)
    count = sum(1 for d in range(2, n + 1) for k in range(1, d) if gcd(k, d) == 1 and d < 3 * k and 2 * k < d)
    return draft(
        f"How many fractions in lowest terms lie strictly between 1/3 and 1/2 and have a denominator of at most {n}?",
        count,
        f"""
        from fractions import Fraction
        found = {{Fraction(k, d) for d in range(1, {n} + 1) for k in range(d)}}
        print(sum(Fraction(1, 3) < value < Fraction(1, 2) for value in found))
        """,
    )


TEMPLATES = (
    Template("numbers/multiples", "train", 0.25, multiples),
    Template("numbers/lights", "train", 0.25, lights),
    Template("numbers/last-digits", "train", 0.3, last_digits),
    Template("numbers/digit-sum", "train", 0.35, digit_sum),
    Template("numbers/congruences", "train", 0.4, congruences),
    Template("numbers/primes", "train", 0.35, primes_between),
    Template("numbers/coprime", "train", 0.35, coprime),
    Template("numbers/divisors", "eval", 0.35, divisors),
    Template("numbers/zeros", "eval", 0.5, zeros),
    Template("numbers/fractions", "eval", 0.55, fractions_between),
)
