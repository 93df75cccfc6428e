import pytest

from lakehouse.schema import CONTENT, PLAIN, TABLES

NAMES = [
    "problems",
    "dispatches",
    "episodes",
    "calls",
    "actions",
    "evidence",
    "rewards",
    "training_sets",
    "training_rows",
    "model_versions",
    "deployments",
    "gates",
    "sources",
    "quarantine",
    "redactions",
    "call_rewards",
    "reviews",
    "erasures",
    "audit",
]


def test_every_table_of_the_loop_is_there():
    assert list(TABLES) == NAMES


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_what_a_table_says_is_about_its_own_columns(table):
    columns = set(table.record.model_fields)
    assert set(table.key) <= columns
    assert set(table.partition_by) <= columns
    assert set(table.columns) <= columns
    assert table.arrow.names == list(table.record.model_fields)
    assert table.grain


def test_optional_fields_are_nullable_and_others_are_not():
    calls = TABLES["calls"].arrow
    assert calls.field("logprobs").nullable
    assert not calls.field("completion_token_ids").nullable


def test_text_and_tokens_of_a_model_are_content():
    assert TABLES["calls"].column("completion_token_ids") == CONTENT
    assert TABLES["calls"].column("latency_s") == PLAIN
    with pytest.raises(KeyError, match="no column"):
        TABLES["calls"].column("nope")
