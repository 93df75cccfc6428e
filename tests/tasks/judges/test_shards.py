"""Judges over a lake: each episode once per judge, failures asked again, a gate where too many have no score."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest

from lakehouse.label import label
from lakehouse.measuring import Reach, reach, record, unmeasured
from lakehouse.query import query
from lakehouse.records import Evidence
from tasks import judge as tasks
from tasks.judge import Asking, CoverageError
from tasks.judges import JudgeMisconfigured

from .conftest import AT, told, verdict


class Progress:
    done = 0

    async def advance(self):
        self.done += 1


@pytest.fixture(autouse=True)
def _log(monkeypatch):
    monkeypatch.setattr(tasks, "get_run_logger", lambda: logging.getLogger("judge"))  # Prefect's, outside of a run


ASKING = Asking(
    evidence="judge", function=None, endpoint=None, model="m", prompt="solved", structured=True, concurrency=4,
    deadline_s=5, attempts=1, max_tokens=64, max_chars=1000,
)  # fmt: skip


async def run(asking, where="true", max_unscored=1.0, size=2):
    """What the flow does."""
    producer, todo = await asyncio.to_thread(tasks.find.fn, asking, where)
    progress, written = Progress(), 0
    for start in range(0, len(todo), size):
        written += await tasks.ask.fn(todo[start : start + size], asking, producer, progress)
    assert progress.done == len(todo)
    return await asyncio.to_thread(tasks.check.fn, asking, producer, where, written, max_unscored), written


async def test_verdicts_become_evidence_once_and_what_failed_is_asked_again(land, endpoint, caplog):
    land(4)
    land(1, status="infra_error")
    async with endpoint(verdict(1), verdict(0), told("fine"), 400, verdict(None)) as scripted:
        asking = replace(ASKING, endpoint=scripted.url, concurrency=1)
        assert await run(asking) == (Reach(scored=2, refused=0, malformed=1, missing=1), 3)
        assert "was not judged" in caplog.text and len(scripted.requests) == 4
        assert await run(asking) == (Reach(scored=2, refused=1, malformed=1, missing=0), 1)
        assert await run(asking) == (Reach(scored=2, refused=1, malformed=1, missing=0), 0)
        assert len(scripted.requests) == 5
        other = replace(asking, max_tokens=65)  # another judge says something of its own
        assert (await run(other))[1] == 4
    rows = query(
        "select value ->> '$.status' as status, count(*) from evidence where name = 'judge' group by 1 order by 1"
    )
    assert dict(rows.rows()) == {"malformed": 1, "refused": 5, "scored": 2}
    assert query("select count(distinct producer), count(distinct attempt_id) from evidence where name = 'judge'").row(
        0
    ) == (2, 1)
    found = label(None, "judge@1")
    assert (found.scored, found.no_evidence, found.not_trainable) == (2, 2, 1)
    assert query("select object, detail ->> '$.written' from audit where action = 'judge' order by noted_at").rows() == [
        ("judge", "3"), ("judge", "1"), ("judge", "4"),
    ]  # fmt: skip


async def test_what_a_judge_repeats_of_private_data_is_replaced(land, endpoint):
    land(1)
    async with endpoint(verdict(1, "it wrote to jane.doe@example.com")) as scripted:
        await run(replace(ASKING, endpoint=scripted.url))
    [(reason,)] = query("select value ->> '$.reason' from evidence where name = 'judge'").rows()
    assert reason.startswith("it wrote to <redacted:") and "jane" not in reason


async def test_a_judge_that_failed_everywhere_fails_the_run(land, endpoint):
    land(3)
    async with endpoint(500) as scripted:
        with pytest.raises(CoverageError, match=r"no score for 100% .* 3 without an answer"):
            await run(replace(ASKING, endpoint=scripted.url, deadline_s=0.3), max_unscored=0.2)
    assert query("from evidence where name = 'judge'").is_empty()


async def test_a_wrong_key_is_one_error_that_says_so(land, endpoint):
    land(2)
    async with endpoint(401) as scripted:
        with pytest.raises(JudgeMisconfigured, match="the key"):
            await run(replace(ASKING, endpoint=scripted.url))


async def test_the_key_is_a_file_of_the_home_folder_and_goes_to_the_endpoint_only(land, endpoint, tmp_path):
    land(1)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "judge").write_text("secret-key\n")
    async with endpoint(verdict(1)) as scripted:
        await run(replace(ASKING, endpoint=scripted.url))
        assert scripted.requests[0]["authorization"] == "Bearer secret-key"
    assert "secret-key" not in str(query("from evidence").rows())


async def test_no_more_episodes_at_a_time_than_asked_for(land, endpoint):
    land(6)
    running, most = 0, 0

    async def slow(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.5)  # the next one is asked meanwhile, also on a busy machine
        running -= 1
        return verdict(1)

    async with endpoint(slow) as scripted:
        await run(replace(ASKING, endpoint=scripted.url, concurrency=2), size=6)
    assert most == 2


async def test_only_the_chosen_episodes_are_judged(land, endpoint):
    land(2)
    land(1, run_id="other")
    async with endpoint(verdict(1)) as scripted:
        found, _ = await run(replace(ASKING, endpoint=scripted.url), where="run_id = 'other'")
    assert found == Reach(scored=1, refused=0, malformed=0, missing=0)


async def test_two_runs_at_once_leave_one_row_per_judge(land):
    land(2)
    todo = unmeasured(None, "judge", "llm m 1")
    facts = [
        Evidence(
            episode_id=one, attempt_id="a", name="judge", value=json.dumps({"status": "scored", "score": 1}),
            producer="llm m 1", created_at=AT,
        )
        for one in todo
    ]  # fmt: skip
    counts = await asyncio.gather(*(asyncio.to_thread(record, None, facts) for _ in range(3)))
    assert sorted(counts) == [0, 0, 2]
    assert reach(None, "judge", "llm m 1") == Reach(scored=2, refused=0, malformed=0, missing=0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"endpoint": "https://x/v1", "model": None}, "which model"),
        ({"function": "json:loads", "model": "m"}, "give one of them"),
        ({"endpoint": "https://x/v1", "prompt": "nope"}, "no prompt 'nope'"),
    ],
)
def test_a_judge_that_cannot_be_is_refused_before_anything_is_asked(change, why):
    with pytest.raises(JudgeMisconfigured, match=why):
        tasks.find.fn(replace(ASKING, **change), "true")
