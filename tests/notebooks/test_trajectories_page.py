"""The parts of an episode's page that have rules of their own."""

import importlib
from types import ModuleType
from typing import Any

import polars as pl
import pytest


@pytest.fixture
def page() -> ModuleType:
    return importlib.import_module("trajectories_page")


CALL: dict[str, Any] = {"prompt_token_ids": [1, 2], "completion_token_ids": [3, 4]}


def test_a_letter_of_several_tokens_stands_at_the_last_of_them(page: ModuleType, byte_tokens: Any) -> None:
    ids = byte_tokens.encode("aÎ").ids
    assert page.pieces(byte_tokens, ids) == ["a", "", "Î"]


def test_bytes_that_are_no_text_do_not_hold_back_what_follows(page: ModuleType, byte_tokens: Any) -> None:
    broken = byte_tokens.encode("Î").ids[:1] * 4
    assert page.pieces(byte_tokens, [*broken, *byte_tokens.encode("a").ids])[-1] == "a"


def test_without_a_tokenizer_a_token_is_its_id(page: ModuleType) -> None:
    assert page.pieces(None, [3, 4]) == ["3 ", "4 "]


def test_a_call_shared_by_two_rows_has_the_advantage_of_the_row_that_trains_it(page: ModuleType) -> None:
    rows = [
        {"input_ids": [1, 2, 3, 4, 9], "loss_mask": [0, 0, 0, 0, 1], "advantage": 1.0},
        {"input_ids": [1, 2, 3, 4, 8], "loss_mask": [0, 0, 1, 1, 0], "advantage": -1.0},
    ]
    assert page.advantages(CALL, rows) == [-1.0, -1.0]


def test_a_row_of_another_branch_trains_nothing_of_a_call(page: ModuleType) -> None:
    rows = [{"input_ids": [1, 2, 5, 6], "loss_mask": [0, 0, 1, 1], "advantage": 1.0}]
    assert page.advantages(CALL, rows) == [None, None]


@pytest.mark.parametrize(
    ("changes", "outcomes", "reason"),
    [
        ({"split": "eval"}, [1.0, 0.0], "held-out"),
        ({}, [1.0, 1.0], "ended alike"),
        ({}, [1.0, 0.0], "no training set"),
    ],
)
def test_an_episode_that_was_not_trained_on_says_why(
    page: ModuleType, changes: dict[str, Any], outcomes: list[float], reason: str
) -> None:
    episode = {"split": "train", "mode": "policy"} | changes
    assert reason in page.why(episode, pl.DataFrame({"outcome": outcomes}), [])


def test_malformed_arguments_are_shown_as_the_model_wrote_them(page: ModuleType) -> None:
    action = {"tool": "run", "arguments": '{"a": <', "observation": "no", "is_error": True, "duration_s": 0.0}
    shown = page.tool(action)
    assert "{&quot;a&quot;: &lt;" in shown and 'class="tool error"' in shown


def test_a_long_text_says_how_much_is_left_out(page: ModuleType) -> None:
    assert page.clipped("x" * 5000).endswith("… 1,000 more characters")
