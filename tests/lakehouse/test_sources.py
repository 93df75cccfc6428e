"""Declarations: what holds is the newest one, and who made it is in the audit."""

import json

import pytest

from lakehouse.governance.audit import entries
from lakehouse.sources import SourceError, declare, listed, newest
from lakehouse.write import Writer

WHOLE = {"licence": "MIT", "allowed_uses": ["training"], "consent": "given", "privacy": "mask"}


def test_a_first_declaration_says_everything_and_a_later_one_what_changes(lake):
    with pytest.raises(SourceError, match="give --licence, --allowed-uses, --consent too"):
        declare(lake, "shop", privacy="mask")
    declare(lake, "shop", **WHOLE, retention_days=30)
    declare(lake, "shop", consent="withheld", actor="ada")
    declared = newest(lake)["shop"]
    assert (declared.consent, declared.licence, declared.retention_days) == ("withheld", "MIT", 30)
    assert declare(lake, "shop", retention_days=0, allowed_uses=[]).retention_days is None
    assert newest(lake)["shop"].allowed_uses == []
    acts = entries(lake, action="declare source").to_dicts()
    assert [act["object"] for act in acts] == ["shop"] * 3
    assert acts[1]["actor"] == "ada" and json.loads(acts[1]["detail"])["consent"] == "withheld"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"privacy": "hide"}, "no privacy 'hide': there are mask, quarantine, allow"),
        ({"consent": "yes"}, "no consent 'yes'"),
        ({"allowed_uses": ["trainning"]}, "no use 'trainning'"),
        ({"retention_days": -1}, "number of days"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(lake, wrong, told):
    with pytest.raises(SourceError, match=told):
        declare(lake, "shop", **WHOLE | wrong)
    assert newest(lake) == {}


def test_the_list_says_what_holds_for_every_source_and_why(lake, make):
    Writer(lake).put_problems([make.problem(), make.problem("q", kind="external", source="shop")])
    by_name = {row["source"]: row for row in listed(lake)}
    assert {name: (row["declared"], row["privacy"]) for name, row in by_name.items()} == {
        "made up": (None, "allow"),
        "shop": (None, "mask"),
        "external": (None, "mask"),
    }
    declare(lake, "*", **WHOLE | {"privacy": "quarantine"})
    declare(lake, "shop", **WHOLE | {"privacy": "allow"})
    by_name = {row["source"]: row for row in listed(lake)}
    assert {name: (row["declared"], row["privacy"]) for name, row in by_name.items()} == {
        "*": ("*", "quarantine"),
        "made up": ("*", "quarantine"),
        "shop": ("shop", "allow"),
        "external": ("*", "quarantine"),
    }
