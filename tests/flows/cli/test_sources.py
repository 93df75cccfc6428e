"""Sources on the command line."""

import json


def test_a_source_is_declared_listed_and_audited(lakeloop):
    whole = (
        "--licence",
        "MIT",
        "--allowed-uses",
        "training, evaluation",
        "--consent",
        "given",
        "--privacy",
        "quarantine",
    )
    ended = lakeloop("sources", "declare", "shop", *whole, "--retention-days", "30")
    assert ended.status == 0 and "shop: privacy quarantine" in ended.said and "no problem in the lake" in ended.said
    told = json.loads(lakeloop("sources", "declare", "shop", "--privacy", "mask", "--json").out)
    assert (told["privacy"], told["allowed_uses"], told["retention_days"]) == ("mask", ["training", "evaluation"], 30)
    rows = {row["source"]: row for row in json.loads(lakeloop("sources", "list", "--json").out)}
    assert (rows["shop"]["privacy"], rows["external"]["privacy"], rows["external"]["declared"]) == (
        "mask",
        "mask",
        None,
    )
    assert "shop" in lakeloop("sources", "list").said
    acts = json.loads(lakeloop("audit", "--json").out)
    assert [act["object"] for act in acts if act["action"] == "declare source"] == ["shop", "shop"]


def test_what_is_missing_is_said(lakeloop):
    ended = lakeloop("sources", "declare", "shop", "--privacy", "mask")
    assert ended.status == 1 and "give --licence, --allowed-uses, --consent too" in ended.said
