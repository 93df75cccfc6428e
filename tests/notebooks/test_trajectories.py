"""The notebook, run headless on a small lake and on an empty one: what its cells define and what they show."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

ROOT = Path(__file__).resolve().parents[2]
Ran = tuple[list[Any], dict[str, Any]]


def run(lake: str) -> Ran:
    """Every cell of the notebook on a lake: what the cells show, and the names they define."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKELOOP_LAKE", lake)
        outputs, names = importlib.import_module("trajectories").app.run()
    return list(outputs), dict(names)


@pytest.fixture(scope="module")
def ran(small_lake: str) -> Ran:
    return run(small_lake)


def test_success_and_reward_are_per_version_kind_and_split(ran: Ran) -> None:
    _, names = ran
    found = {
        (row["kind"], row["split"], row["version"]): (row["success"], row["episodes"])
        for row in names["by_version"].to_dicts()
    }
    each = {("eval", 1): (0, 1), ("eval", 2): (1, 1), ("train", 1): (0.5, 2), ("train", 2): (1, 2)}
    assert found == {(kind, *key): value for kind in ("search", "swe") for key, value in each.items()}
    partial = names["by_version"].filter(kind="swe", split="eval", version=1)
    assert partial["reward"].to_list() == [pytest.approx(0.1)]  # half of the broken tests repaired


def test_staleness_counts_the_trained_tokens_by_the_age_of_their_version(ran: Ran) -> None:
    _, names = ran
    trained = names["episodes"].filter(pl.col("advantage").is_not_null())
    assert names["staleness"].rows() == [(1, trained["tokens"].sum())]
    assert set(trained["version"]) == {1}  # every version 2 group ended alike


def test_every_sampled_token_has_a_bar_and_every_version_a_rate(ran: Ran) -> None:
    _, names = ran
    tokens, rate = names["fate"].axes
    assert sum(bar.get_width() for bar in tokens.patches) == names["fates"]["tokens"].sum() > 0
    assert len(rate.containers) == names["hacks"]["kind"].n_unique() == 2
    assert names["hacks"]["rate"].max() <= 1


def test_the_charts_draw_what_the_lake_holds(ran: Ran) -> None:
    _, names = ran
    success, reward = names["progress"].axes
    assert len(success.containers) == len(reward.containers) == 4  # two kinds, held out and in training
    assert [label.get_text() for label in success.get_xticklabels()] == ["v1\nbase", "v2\ngrpo"]
    _, turns, stale = names["shape"].axes
    assert sum(bar.get_height() for bar in turns.patches) == len(names["episodes"])
    assert [bar.get_height() for bar in stale.patches] == [names["staleness"]["tokens"][0]]


def test_an_episode_that_was_trained_on_shows_both_shades_and_its_tool_calls(ran: Ran) -> None:
    _, names = ran
    shown, episode = names["shown"], names["episode"]
    assert episode["advantage"] is not None  # the newest that was trained on is chosen first
    assert shown.count('<div class="turn">') == episode["turns"] == 2
    assert shown.count("log-prob -0.500") == shown.count(f'advantage {episode["advantage"]:+.2f}"') == episode["tokens"]
    assert "not trained on" not in shown
    assert "<i>query</i> Île &lt;b&gt;" in shown and "1. Îles: a page" in shown
    assert "Solve swe/train &amp; say &lt;so&gt;." in shown and "<so>" not in shown
    assert "reward 0.1" in shown and "&quot;resolved&quot;: false" in shown


def test_the_list_of_episodes_is_newest_first(ran: Ran) -> None:
    _, names = ran
    assert names["matching"]["started_at"].is_sorted(descending=True)
    assert set(names["matching"]["purpose"]) == {"train"}
    assert list(names["chosen"].options.values()) == names["matching"]["episode_id"].to_list()


def test_an_empty_lake_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs, names = run(str(tmp_path / "none"))
    shown = "".join(output.text for output in outputs if hasattr(output, "text"))
    for text in (shown, capsys.readouterr().out):
        assert "No episodes yet" in text and "lakeloop quickstart" in text
    assert "by_version" not in names


def test_episodes_that_nobody_judged_are_shown_without_a_chart_of_rewards(small_lake: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for table in ("episodes", "calls", "actions", "evidence"):
        shutil.copytree(Path(small_lake, table), lake / table)
    outputs, names = run(str(lake))
    assert "progress" not in names and "shape" in names
    assert "lakeloop label" in "".join(output.text for output in outputs if hasattr(output, "text"))
    assert "not judged" in names["shown"] and "no training set" in names["shown"]
    assert (
        len(re.findall(r">\d+ </span>", names["shown"])) == 2 * names["episode"]["tokens"]
    )  # ids: no model folder known


def test_it_runs_as_a_script_from_anywhere(small_lake: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "notebooks" / "trajectories.py"],
        cwd=tmp_path,
        env=os.environ | {"LAKELOOP_LAKE": small_lake},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "shown: 01 Jan" in done.stdout and "2 turns" in done.stdout
    assert "Warning" not in done.stderr
