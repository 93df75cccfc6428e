"""Processes that land, label, select and compact are killed at random points, several at a time: nothing is lost or doubled.

One process imports everything once and forks a worker per order, so that twenty kills cost seconds. `LAKELOOP_CRASHES=200`
runs as many, `LAKELOOP_CRASH_SEED` other points in time.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from lakehouse.label import label
from lakehouse.query import connect, query
from lakehouse.selection.select import Selection, select
from lakehouse.write import Writer

KILLS = int(os.environ.get("LAKELOOP_CRASHES", "20"))
SEED = int(os.environ.get("LAKELOOP_CRASH_SEED", "0"))
DEADLINE_S = 120
SELECTION = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1, max_tokens_per_row=64)
NURSERY = """
import json, os, sys, time, traceback
from pathlib import Path
from lakehouse.collecting import remaining
from lakehouse.label import label
from lakehouse.records import Action, Call, Episode, Evidence
from lakehouse.selection.select import NothingTrainable, Selection, select
from lakehouse.store import Overtaken
from lakehouse.write import Writer

lake, batches, selection = sys.argv[1:]
batches = json.loads(Path(batches).read_text())
KINDS = {"episodes": Episode, "calls": Call, "actions": Action, "evidence": Evidence}


def collect():
    todo = [one.episode_id for one in remaining(lake, "r")]
    attempt = f"a{os.getpid()}"
    for start in range(0, len(todo), 4):
        rows = {name: [] for name in KINDS}
        for episode_id in todo[start : start + 4]:
            for name, kind in KINDS.items():
                rows[name] += [kind(**{**row, "attempt_id": attempt}) for row in batches[episode_id][name]]
        Writer(lake).land(*rows.values())
    label(lake, "search@2")
    try:
        select(lake, Selection(**json.loads(selection)))
    except NothingTrainable:
        pass


def compact():
    try:
        Writer(lake).compact()
    except Overtaken:
        pass


for line in sys.stdin:
    order, _, number = line.strip().partition(" ")
    if order == "wait":
        print(os.waitpid(int(number), 0)[1], flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        try:
            {"collect": collect, "compact": compact}[order]()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(pid, flush=True)
"""


class Nursery:
    """Starts workers that can be killed."""

    def __init__(self, process) -> None:
        self._process = process

    def start(self, order: str) -> int:
        return self._said(order)

    def wait(self, pid: int) -> int:
        """The worker's wait status: 0, or the signal that ended it."""
        return self._said(f"wait {pid}")

    def _said(self, order: str) -> int:
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@pytest.fixture
def nursery(lake, tmp_path, make):
    batches = {}
    for shard in range(8):
        for sample in range(4):
            batch = make.batch(f"p{shard}", sample, match=sample % 2 == 0)
            rows = {name: [one.model_dump(mode="json") for one in part] for name, part in vars(batch).items()}
            batches[batch.episodes[0].episode_id] = rows
    (tmp_path / "batches.json").write_text(json.dumps(batches))
    command = [sys.executable, "-c", NURSERY, lake, str(tmp_path / "batches.json"), SELECTION.model_dump_json()]
    log = (tmp_path / "nursery.log").open("w+")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield Nursery(process)
    finally:
        process.stdin.close()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.seek(0)
        print(log.read()[-4000:])
        log.close()


def prepare(lake, make):
    writer = Writer(lake)
    writer.append("dispatches", [make.dispatch(f"p{shard}", sample) for shard in range(8) for sample in range(4)])
    writer.append("model_versions", [make.version(1)])
    writer.append("problems", [make.problem(f"p{shard}") for shard in range(8)])


def check(lake) -> int:
    """What holds after every kill; how many episodes have landed."""
    with connect(lake) as connection:
        for name in ("one_landing", "recorded_tokens", "token_ledger"):
            assert connection.execute(f"from checks.{name}").fetchall() == [], name
        doubled = "select episode_id, call_index from calls group by all having count(*) > 1"
        assert connection.execute(doubled).fetchall() == []
        return connection.execute("select count(*) from episodes").fetchone()[0]


@pytest.mark.timeout(max(300, 10 * KILLS))
def test_workers_killed_at_random_points_lose_nothing_and_double_nothing(lake, make, nursery, tmp_path):
    prepare(lake, make)
    chance = random.Random(SEED)
    killed = done = 0
    while killed + done < KILLS:
        orders = ["collect", "collect", "compact"] if chance.random() < 0.5 else ["collect"]
        pids = [nursery.start(order) for order in orders]
        time.sleep(chance.uniform(0.02, 0.6))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        statuses = [nursery.wait(pid) for pid in pids]
        assert set(statuses) <= {0, signal.SIGKILL}, "a worker failed by itself: see the captured output"
        killed += statuses.count(signal.SIGKILL)
        done += statuses.count(0)
        check(lake)
    assert killed > KILLS / 4
    assert nursery.wait(nursery.start("collect")) == 0
    assert check(lake) == 32
    assert query("select count(*) as n from quarantine", lake)["n"][0] == 0
    told = select(lake, SELECTION)

    undisturbed = str(tmp_path / "undisturbed")
    prepare(undisturbed, make)
    whole = make.group([], "none")
    for shard in range(8):
        whole += make.group([True, False, True, False], f"p{shard}")
    whole.land(undisturbed)
    label(undisturbed, "search@2")
    select(undisturbed, SELECTION)
    digests = [
        query("select digest from training_sets order by created_at desc", one)["digest"][0]
        for one in (lake, undisturbed)
    ]
    assert digests[0] == digests[1]
    assert (told.rows, told.episodes) == (32, 32)
