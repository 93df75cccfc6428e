"""What customers come with, what the books must say afterwards, and how an expert gets there."""

from dataclasses import dataclass, field
from typing import Any

from shop.world import EMAILS, Shop

Act = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Scenario:
    """One customer. `changes` and `outcome` are the books that are right; `acts` is how an expert writes them."""

    name: str
    opening: str
    order: str
    email: str
    outcome: str
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    acts: tuple[Act, ...] = ()
    detail: str = "There is nothing more to say about it."
    address: str = ""
    split: str = "train"
    difficulty: float = 0.4

    @property
    def problem_id(self) -> str:
        return f"external/shop/{self.name}"

    def wrong(self, shop: Shop) -> str | None:
        """The first thing in the books that is not as it should be, None where all is right."""
        if shop.outcome != self.outcome:
            return f"the case is closed as {shop.outcome}, not as {self.outcome}"
        for number in sorted({*shop.changes, *self.changes}):
            is_now, should = shop.changes.get(number, {}), self.changes.get(number, {})
            if is_now != should:
                return f"order {number}: changed {is_now}, should be {should}"
        return None


def _case(name: str, who: str, order: str, outcome: str, opening: str, *acts: Act, **more: Any) -> Scenario:
    return Scenario(name, opening, order, EMAILS.get(who, who), outcome, acts=acts, **more)


def _replace(order: str) -> Act:
    return "replace", {"order": order}


def _refund(order: str, amount: int) -> Act:
    return "refund", {"order": order, "amount": amount}


def _label(order: str) -> Act:
    return "return_label", {"order": order}


_MOVE = "12 Hill Road, Bergen"
SCENARIOS = (
    _case("lamp-broken", "ana", "4711", "replaced", "Hello, my desk lamp arrived broken.", _replace("4711"),
          changes={"4711": {"replaced": True}}, detail="The shade is cracked.", difficulty=0.3),
    _case("lamp-unwanted", "ana", "4711", "returned", "I would like to send a lamp back, I do not like it.", _label("4711"),
          changes={"4711": {"return_label": True}}, detail="It is still in its box, unopened.", difficulty=0.3),
    _case("chair-cancel-late", "ana", "4712", "refused", "Please cancel my chair.",
          detail="I just changed my mind.", difficulty=0.3),
    _case("rug-cancel", "ana", "4713", "cancelled", "Can I still cancel a rug that I ordered?", ("cancel", {"order": "4713"}),
          changes={"4713": {"status": "cancelled"}}, difficulty=0.2),
    _case("rug-moves", "ana", "4713", "changed", "I have moved! Where will my rug go?",
          ("change_address", {"order": "4713", "address": _MOVE}), changes={"4713": {"address": _MOVE}}, address=_MOVE),
    _case("chair-moves", "ana", "4712", "refused", "My chair must go to another address.", address=_MOVE, difficulty=0.4),
    _case("floor-lamp-return", "ana", "4714", "refused", "I want to return a floor lamp.",
          detail="Unopened, as new.", difficulty=0.4),
    _case("floor-lamp-wrong", "ana", "4714", "replaced", "You sent me the wrong floor lamp.", _replace("4714"),
          changes={"4714": {"replaced": True}}, detail="I ordered the black one, this is white.", difficulty=0.5),
    _case("bookshelf-broken", "ben", "4721", "escalated", "The bookshelf fell apart. I want my money.",
          detail="Two boards are split.", difficulty=0.7),
    _case("stool-return", "ben", "4722", "refused", "I want to return a stool.", detail="It is unopened.", difficulty=0.5),
    _case("wall-lamp-return", "ben", "4723", "refused", "The wall lamp does not suit me, I send it back.",
          detail="I opened the box, of course.", difficulty=0.4),
    _case("wall-lamp-dark", "ben", "4723", "replaced", "The wall lamp stays dark.", _replace("4723"),
          changes={"4723": {"replaced": True}}, detail="It was broken when it came.", difficulty=0.4),
    _case("mirror-late", "ben", "4724", "refunded", "My mirror is two weeks late! What do I get for that?", _refund("4724", 8),
          changes={"4724": {"refunded": 8}}, detail="I want all my money back, really.", difficulty=0.5),
    _case("bench-cancel", "ben", "4725", "cancelled", "Stop the bench please, I found another.", ("cancel", {"order": "4725"}),
          changes={"4725": {"status": "cancelled"}}, difficulty=0.2),
    _case("bench-stranger", "eve@example.org", "4725", "refused", "Cancel the bench.",
          detail="He is my neighbour.", difficulty=0.6),
    _case("armchair-gold", "cleo", "4731", "returned", "May I still return an armchair?", _label("4731"),
          changes={"4731": {"return_label": True}}, detail="It is unopened.", difficulty=0.5),
    _case("lantern-gold", "cleo", "4732", "refused", "I want to return a lantern. I am a gold customer!",
          detail="Unopened.", difficulty=0.5),
    _case("side-table-broken", "cleo", "4733", "refunded", "A leg of my side table was broken from the start.",
          _refund("4733", 88),
          changes={"4733": {"refunded": 88}}, detail="It was like that when I opened it.", difficulty=0.6),
    _case("wardrobe-sues", "cleo", "4734", "escalated", "Where is my wardrobe? My lawyer will write to you, I will sue!",
          detail="I said that I will sue.", difficulty=0.6, split="eval"),
    _case("wardrobe-cancel", "cleo", "4734", "cancelled", "I do not need the wardrobe any more.", ("cancel", {"order": "4734"}),
          changes={"4734": {"status": "cancelled"}}, difficulty=0.3, split="eval"),
    _case("pendant-old", "dov", "4741", "refused", "My pendant came broken, send a new one.",
          detail="It was broken from the start.",
          difficulty=0.6, split="eval"),
    _case("sofa-wrong", "dov", "4742", "refunded", "You sent me somebody else's sofa.", _refund("4742", 180),
          changes={"4742": {"refunded": 180}}, detail="It is a red one. Mine is grey.", difficulty=0.6, split="eval"),
    _case("shelf-late", "dov", "4743", "refused", "My shelf is late. Pay me the shipping back.", detail="It is six days late!",
          difficulty=0.5, split="eval"),
    _case("shelf-when", "dov", "4743", "answered", "When will my shelf come?", detail="I only want to know.", difficulty=0.3,
          split="eval"),
)  # fmt: skip
