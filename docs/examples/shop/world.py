"""The shop's books, and a service agent's tools. They do what they are told: following the policy is the agent's part."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

POLICY = """You answer customers of a lamp and furniture shop. Tools read and change the books; talk to the customer in plain text.
Ask for the order number and the e-mail address first. Change nothing before the address is the one of the order; if it is not,
close the case as refused.
- Cancel: only while the order is placed. What is shipped cannot be cancelled: refused.
- Address: may be changed only while the order is placed.
- Return: within 30 days of delivery (gold customers 60), unopened, not final sale. Send a label; the money follows by itself.
- Broken or wrong on arrival, within 60 days of delivery: replace it if it is in stock, else refund the full price.
- More than 10 days late: refund the shipping fee, nothing else.
- A refund over $200 is not yours to give, and neither is what a customer threatens to sue over: close the case as escalated.
- What the policy does not give is refused, however the customer asks.
End every conversation with close_case."""

OUTCOMES = ["answered", "cancelled", "changed", "escalated", "refunded", "refused", "replaced", "returned"]
EMAILS = {
    "ana": "ana@example.org", "ben": "ben@example.org", "cleo": "cleo@example.org", "dov": "dov@example.org",
}  # fmt: skip
GOLD = {"cleo"}

# number, customer, item, price, shipping, status, days since delivery (or until it), in stock, opened, final sale, days late
_ORDERS = """
4711 ana  desk-lamp    49  6 delivered 3   yes no  no  0
4712 ana  oak-chair    120 15 shipped  -2  yes no  no  0
4713 ana  rug          80  9 placed    -7  yes no  no  0
4714 ana  floor-lamp   95  9 delivered 45  yes no  no  0
4721 ben  bookshelf    260 30 delivered 5  no  yes no  0
4722 ben  stool        35  5 delivered 12  yes no  yes 0
4723 ben  wall-lamp    60  7 delivered 12  yes yes no  0
4724 ben  mirror       75  8 shipped   -1  yes no  no  14
4725 ben  bench        140 18 placed   -4  yes no  no  0
4731 cleo armchair     190 22 delivered 45 yes no  no  0
4732 cleo lantern      28  4 delivered 70  yes no  no  0
4733 cleo side-table   88  9 delivered 50  no  yes no  0
4734 cleo wardrobe     410 45 placed   -9  yes no  no  0
4741 dov  pendant      55  6 delivered 61  yes yes no  0
4742 dov  sofa         180 40 delivered 8  no  yes no  0
4743 dov  shelf        45  6 shipped   -3  yes no  no  6
""".strip()
_FIELDS = "customer item price shipping status days in_stock opened final_sale late".split()


def _orders() -> dict[str, dict[str, Any]]:
    found = {}
    for line in _ORDERS.splitlines():
        number, *values = line.split()
        order: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
        order |= {name: int(order[name]) for name in ("price", "shipping", "days", "late")}
        order |= {name: order[name] == "yes" for name in ("in_stock", "opened", "final_sale")}
        found[number] = order | {"refunded": 0, "return_label": False, "replaced": False, "address": "as ordered"}
    return found


class Shop:
    """One conversation's books. `outcome` is None until the case is closed."""

    def __init__(self) -> None:
        self.orders = _orders()
        self.outcome: str | None = None
        self._before = deepcopy(self.orders)

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        """What is no more as it was: order number -> field -> value."""
        return {
            number: changed
            for number, order in self.orders.items()
            if (changed := {name: value for name, value in order.items() if value != self._before[number][name]})
        }

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool; what it says. Wrong calls are told so."""
        if name not in TOOLS:
            return f"error: no tool {name[:40]!r}; there are {', '.join(TOOLS)}"
        act, parameters, _ = TOOLS[name]
        fits = set(arguments) == set(parameters) and all(
            type(arguments[key]) is kind for key, kind in parameters.items()
        )
        if not fits:
            return f"error: {name} takes {', '.join(f'{key}: {kind.__name__}' for key, kind in parameters.items())}"
        if self.outcome is not None:
            return "error: the case is closed"
        if "order" in arguments and arguments["order"] not in self.orders:
            return f"error: no order {arguments['order'][:20]!r}"
        return act(self, **arguments)

    def lookup_order(self, order: str) -> str:
        found = self.orders[order]
        told = {name: value for name, value in found.items() if name != "customer"}
        return str(told | {"email": EMAILS[found["customer"]], "gold": found["customer"] in GOLD})

    def cancel(self, order: str) -> str:
        self.orders[order]["status"] = "cancelled"
        return "cancelled; the price is paid back"

    def refund(self, order: str, amount: int) -> str:
        found = self.orders[order]
        if not 0 < amount <= found["price"] + found["shipping"] - found["refunded"]:
            return "error: the amount is more than was paid, or nothing"
        found["refunded"] += amount
        return f"${amount} are on their way"

    def return_label(self, order: str) -> str:
        self.orders[order]["return_label"] = True
        return "the label is sent by e-mail"

    def replace(self, order: str) -> str:
        if not self.orders[order]["in_stock"]:
            return "error: out of stock"
        self.orders[order]["replaced"] = True
        return "a new one is on its way"

    def change_address(self, order: str, address: str) -> str:
        self.orders[order]["address"] = " ".join(address.split())
        return "changed"

    def close_case(self, outcome: str) -> str:
        if outcome not in OUTCOMES:
            return f"error: outcome is one of {', '.join(OUTCOMES)}"
        self.outcome = outcome
        return "closed"


TOOLS: dict[str, tuple[Callable[..., str], dict[str, type], str]] = {
    "lookup_order": (Shop.lookup_order, {"order": str}, "What the books say of an order."),
    "cancel": (Shop.cancel, {"order": str}, "Cancel an order."),
    "refund": (Shop.refund, {"order": str, "amount": int}, "Pay back an amount in whole dollars."),
    "return_label": (Shop.return_label, {"order": str}, "Send a return label."),
    "replace": (Shop.replace, {"order": str}, "Send the item again."),
    "change_address": (Shop.change_address, {"order": str, "address": str}, "Change where an order goes."),
    "close_case": (Shop.close_case, {"outcome": str}, f"End the conversation: {', '.join(OUTCOMES)}."),
}


def schemas() -> list[dict[str, Any]]:
    """The tools in OpenAI's form."""
    types = {str: "string", int: "integer"}
    described = []
    for name, (_, parameters, description) in TOOLS.items():
        properties = {key: {"type": types[kind]} for key, kind in parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(parameters)}
        described.append(
            {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
        )
    return described
