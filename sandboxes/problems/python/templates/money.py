"""Word problems of several steps: prices, wages, interest, rates, mixtures."""

from fractions import Fraction
from random import Random

from sandboxes.problems.python.templates.base import Draft, Template, draft


def shopping(draw: Random) -> Draft:
    a, b, off = draw.randint(3, 19), draw.randint(3, 19), draw.choice((5, 10, 15, 20, 25))
    p, q = draw.randint(120, 990), draw.randint(120, 990)
    pay = Fraction((a * p + b * q) * (100 - off), 10_000)
    return draft(
        f"""A shop sells notebooks at ${p / 100:.2f} and pens at ${q / 100:.2f}. Nadia buys {a} notebooks and {b} pens and
        gets {off} % off the whole bill. How many dollars does she pay? Give the exact amount, not rounded.""",
        pay,
        f"""
        from decimal import Decimal
        bill = {a} * Decimal("{p / 100:.2f}") + {b} * Decimal("{q / 100:.2f}")
        print(bill)
        """,
        f"print((bill * (100 - {off}) / 100).normalize())",
    )


def overtime(draw: Random) -> Draft:
    wage, limit = draw.randint(14, 39), draw.choice((35, 38, 40))
    hours = [draw.randint(30, 56) for _ in range(4)]
    paid = sum(Fraction(wage) * h + (Fraction(wage) * max(0, h - limit)) / 2 for h in hours)
    return draft(
        f"""A worker earns ${wage} an hour, and one and a half times that for every hour beyond {limit} in a week. In four
        weeks the hours were {hours[0]}, {hours[1]}, {hours[2]} and {hours[3]}. How many dollars were earned in total?""",
        paid,
        f"""
        total = 0
        for hours in {hours}:
            for hour in range(hours):
                total += {wage} if hour < {limit} else {wage} * 1.5
        print(total)
        """,
    )


def savings(draw: Random) -> Draft:
    start, rate, years, add = draw.randint(900, 9000), draw.randint(2, 9), draw.randint(4, 9), draw.randint(100, 900)
    cents = start * 100
    for _ in range(years):
        cents += cents * rate // 100 + add * 100
    return draft(
        f"""An account holds ${start}. At the end of each year the bank adds {rate} % of the balance, rounded down to a whole
        cent, and then the owner pays in ${add}. How many dollars are in the account after {years} years?""",
        Fraction(cents, 100),
        f"""
        from decimal import ROUND_DOWN, Decimal
        balance = Decimal({start})
        for year in range({years}):
            interest = (balance * {rate} / 100).quantize(Decimal("0.01"), rounding=ROUND_DOWN)
            balance += interest + {add}
            print(year + 1, balance)
        """,
        "print(balance)",
    )


def tank(draw: Random) -> Draft:
    a, b, leak = draw.randint(3, 9), draw.randint(4, 12), draw.randint(15, 40)
    hours = 1 / (Fraction(1, a) + Fraction(1, b) - Fraction(1, leak))
    return draft(
        f"""One pump fills an empty tank in {a} hours, another in {b} hours. A leak empties the full tank in {leak} hours.
        Both pumps run and the tank leaks. After how many hours is the empty tank full? Give a fraction.""",
        hours,
        f"""
        from fractions import Fraction
        share = Fraction({b} * {leak} + {a} * {leak} - {a} * {b}, {a} * {b} * {leak})
        print(share)
        """,
        "print(1 / share)",
    )


def mixture(draw: Random) -> Draft:
    a, b, want = draw.randint(5, 20), draw.randint(50, 90), draw.randint(25, 45)
    litres = draw.randint(3, 30)
    added = Fraction(litres * (want - a), b - want)
    return draft(
        f"""How many litres of a solution with {b} % acid must be added to {litres} litres of one with {a} % acid to get a
        solution with {want} % acid? Give a fraction.""",
        added,
        f"""
        from fractions import Fraction
        low, high = Fraction(0), Fraction(1000)
        # share of acid is monotone: solve litres * a + x * b = want * (litres + x) for x
        x = Fraction({want} * {litres} - {a} * {litres}) / ({b} - {want})
        assert ({litres} * {a} + x * {b}) / ({litres} + x) == {want}
        print(x)
        """,
    )


def commute(draw: Random) -> Draft:
    out, back, far = draw.randint(40, 70), draw.randint(71, 120), draw.randint(50, 400)
    rest = draw.choice((15, 20, 30, 45))
    hours = Fraction(far, out) + Fraction(far, back) + Fraction(rest, 60)
    return draft(
        f"""A van drives {far} km at {out} km/h, rests {rest} minutes, and drives the same way back at {back} km/h. What is its
        average speed over the whole time, rest included, in km/h? Give a fraction.""",
        2 * far / hours,
        f"""
        from fractions import Fraction
        minutes = Fraction({far} * 60, {out}) + {rest} + Fraction({far} * 60, {back})
        print(Fraction({2 * far} * 60) / minutes)
        """,
    )


def tickets(draw: Random) -> Draft:
    adult, child = draw.randint(11, 25), draw.randint(4, 10)
    n, grown = draw.randint(120, 400), draw.randint(30, 110)
    taken = grown * adult + (n - grown) * child
    return draft(
        f"""A show sold {n} tickets, adults at ${adult} and children at ${child}, and took ${taken}. By how many do tickets for
        children outnumber those for adults? A negative number means that they do not.""",
        n - 2 * grown,
        f"""
        found = [a for a in range({n} + 1) if a * {adult} + ({n} - a) * {child} == {taken}]
        print(found)
        """,
        f"print({n} - 2 * found[0])",
    )


TEMPLATES = (
    Template("money/shopping", "train", 0.15, shopping),
    Template("money/overtime", "train", 0.2, overtime),
    Template("money/savings", "train", 0.4, savings),
    Template("money/tank", "train", 0.3, tank),
    Template("money/mixture", "train", 0.3, mixture),
    Template("money/commute", "eval", 0.3, commute),
    Template("money/tickets", "eval", 0.25, tickets),
)
