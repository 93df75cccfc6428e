"""Kills without warning of every part of a running loop, and what is left of it: `lakeloop bench kills`.

An asynchronous loop runs on a stack of its own, with the real engine and the shipped tiny weights. At random moments one of its
parts is killed with -9; `lakeloop up` starts what died again, and the same command with its loop id goes on where the loop
ended by that. Loops follow each other until every part was killed as often as asked, or until Ctrl-C; then the lake is asked
what must hold.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from benchmarks.learn import stack
from benchmarks.processes import ROOT, python
from benchmarks.report import say, tell
from lakehouse import connect
from lakehouse.governance import checks
from tasks.serving import models
from tasks.stack import Settings, processes, up
from tasks.training.folder import weights_digest

FLOW, TRAINER, SERVICES = "flow", "trainer", ("engine", "gateway", "prefect", "mlflow")
PARTS = (FLOW, TRAINER, *SERVICES)
STEPS = 3  # of a loop
LOOP = ["--mode", "async", "--staleness", "1", "--rounds", str(STEPS), "--samples", "4", "--max-difficulty", "0.35"]
LOOP += ["--problems", '{"search": 6}', "--evaluate-problems", "{}"]
LOOP += ["--deadline-s", "120", "--group-deadline-s", "300", "--starved-s", "900"]
SHOWN = ["--problems", '{"search": 192}', "--samples", "1", "--max-difficulty", "0.35", "--agent", "expert"]
CALM_S = (2.0, 12.0)  # from one kill to the next
LOOP_DEADLINE_S = 3600.0

# What must give no rows, once every loop has ended. The loops of this benchmark are named `kills-N`.
MUST_BE_NONE = {
    "lost": """
        select episode_id from dispatches left join episodes using (episode_id)
        where loop_id like 'kills-%' and episodes.episode_id is null
            and episode_id not in (select episode_id from quarantine where table_name = 'episodes')
    """,
    "doubled": """
        select episode_id from calls join dispatches using (episode_id) where loop_id like 'kills-%'
        group by episode_id having count(distinct attempt_id) > 1 or count(*) <> count(distinct call_id)
    """,
    "calls_missing": """
        select episode_id from episodes join dispatches using (episode_id)
        where loop_id like 'kills-%'
            and n_calls <> (select count(*) from calls where calls.episode_id = episodes.episode_id)
    """,
    "trained_twice": """
        select name from (
            select loop_id, unnest((selection -> '$.asked.group_ids')::varchar[]) as name from training_sets
            where loop_id like 'kills-%'
        ) group by loop_id, name having count(*) > 1
    """,
    "steps_missing": f"""
        select loop_id from training_sets where loop_id like 'kills-%'
        group by loop_id having list_sort(list(loop_step)) <> range({STEPS})
    """,
    "versions_missing": """
        select training_set_id from training_sets left join model_versions using (training_set_id)
        where loop_id like 'kills-%' and n_rows > 0 group by all having count(version) <> 1
    """,
    "versions_skipped": """
        select version from model_versions join training_sets using (training_set_id)
        where loop_id like 'kills-%' and parent_version <> policy_version
    """,
    "served_unproven": """
        select version from model_versions join training_sets using (training_set_id)
        where loop_id like 'kills-%' and version not in (select version from deployments where accepted)
    """,
    "too_old": "select loop_id from queries.loop_steps where loop_id like 'kills-%' and max_staleness > 1",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two kills of each part: shows that it works")
    parser.add_argument("--kills", type=int, default=20, help="of each part")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="whom to kill")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and their order")
    given = parser.parse_args()
    with stack() as settings:
        left = Counter(dict.fromkeys(given.parts, 2 if given.quick else given.kills))
        tell(Killing(settings, left, random.Random(given.seed)).run())


class Killing:
    """Loops, one after the other, and who is killed in them."""

    def __init__(self, settings: Settings, left: Counter[str], random: random.Random) -> None:
        self.settings = settings
        self.urls = {
            "engine": settings.engine,
            "gateway": settings.gateway_url,
            "prefect": settings.prefect_url,
            "mlflow": settings.mlflow_url,
        }
        self.left = left
        self.random = random
        self.killed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()  # loops that ended by a kill, by what was killed last
        self.down_s: dict[str, list[float]] = {name: [] for name in SERVICES}
        self.loops = 0
        self.seed = 0
        self.stopped = False

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        signal.signal(signal.SIGINT, self._enough)
        up(self.settings)  # worker and watcher too
        self._warm_start()
        # In a home of before, loops go on from that one's last, which is finished if it was not.
        self.seed = max(0, len(rows("select distinct loop_id from dispatches where loop_id like 'kills-%'")) - 1)
        while self._more():
            self._loop(f"kills-{self.seed}")
            self.loops += 1
            self.seed += 1
        return {
            "killed": dict(self.killed),
            "loops": self.loops,
            "steps": self.loops * STEPS,
            "loop_ended_by": dict(self.ended),
            "up_again_s": {name: round(sum(took) / len(took), 1) for name, took in self.down_s.items() if took},
            "minutes": round((time.monotonic() - began) / 60, 1),
            **judged(),
        }

    def _enough(self, *_: Any) -> None:
        """Ctrl-C: no more kills. The loop goes to its end and is judged."""
        self.stopped = True

    def _more(self) -> bool:
        return not self.stopped and self.left.total() > 0

    def _warm_start(self) -> None:
        """Groups whose samples end differently need a policy that can do something."""
        if rows("select 1 from model_versions where stage = 'sft'"):
            return
        say("demonstrations, and weights that were trained on them")
        run("release", "--folder", str(models.resolve(self.settings.model, self.settings.home)), "--stage", "base")
        run("collect", *SHOWN, "--run-id", "shown", "--purpose", "demonstration")
        run("label", "--run-ids", '["shown"]')
        made = json.loads(run("train", "--objective", "sft", "--run-ids", '["shown"]'))
        run("release", "--folder", made["folder"], "--stage", "sft", "--parent", str(made["parent"]))

    def _loop(self, name: str) -> None:
        """One loop to its end, however often it must be started."""
        give_up = time.monotonic() + LOOP_DEADLINE_S
        while True:
            victim = None
            with loop(name, seed=self.seed) as process:
                while process.poll() is None:
                    if time.monotonic() > give_up:
                        raise RuntimeError(f"loop {name} did not end within {LOOP_DEADLINE_S:.0f} s")
                    if not self._more():
                        process.wait(max(1.0, give_up - time.monotonic()))
                    elif waited(process, self.random.uniform(*CALM_S)):
                        victim = self._strike(process) or victim
            if process.returncode == 0:
                say(f"loop {name} is done; still to kill: {dict(+self.left)}")
                return
            if victim is None:
                raise RuntimeError(
                    f"loop {name} ended with status {process.returncode}, and nobody was killed:\n{end_of(name)}"
                )
            self.ended[victim] += 1
            say(f"loop {name} ended with status {process.returncode} after {victim} was killed; it goes on")
            up(self.settings)

    def _strike(self, process: "subprocess.Popen[bytes]") -> str | None:
        """Kill one of those that are left; None where none of them runs now."""
        alive = {victim: found for victim in +self.left if (found := self._process(victim, process))}
        if not alive:
            return None
        # A trainer runs for a short part of a loop only.
        (victim,) = self.random.choices(list(alive), [self.left[one] * (4 if one == TRAINER else 1) for one in alive])
        kill(alive[victim])
        self.killed[victim] += 1
        self.left[victim] -= 1
        if victim in SERVICES:
            time.sleep(self.random.uniform(0, 3))  # somebody has to notice first
            began = time.monotonic()
            up(self.settings)
            self.down_s[victim].append(time.monotonic() - began)
        return victim

    def _process(self, victim: str, process: "subprocess.Popen[bytes]") -> psutil.Process | None:
        if victim == FLOW:
            return psutil.Process(process.pid)
        if victim == TRAINER:
            return next(iter(trainers(process)), None)
        return serving(urlsplit(self.urls[victim]).port)


def serving(port: int | None) -> psutil.Process | None:
    """Who listens there. A server's first process may only watch over the one that serves (MLflow's does)."""
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
            return psutil.Process(one.pid)
    return None


@contextlib.contextmanager
def loop(name: str, *, seed: int) -> Iterator["subprocess.Popen[bytes]"]:
    """The loop as a command. What of it is left at the end of the block is killed."""
    log = processes.log_path(name, Settings().home).open("ab")
    command = python("-m", "flows", "improve", *LOOP, "--seed", str(1000 + seed), "--loop-id", name)
    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        log.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_of(name: str) -> str:
    return processes.tail(name, Settings().home)


def waited(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether it still runs after these seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def trainers(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """The loop's trainer: torchrun and its ranks."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "tasks.training" in child.cmdline():
                found.append(child)
    return found


def kill(process: psutil.Process) -> None:
    """As the kernel does it that is out of memory: this process, and nobody tells the others."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        give_up = time.monotonic() + 10
        while (
            process.status() != psutil.STATUS_ZOMBIE
        ):  # not waited for: how a child of ours ended is its parent's to see
            if time.monotonic() > give_up:
                raise RuntimeError(f"process {process.pid} is there 10 s after it was killed")
            time.sleep(0.01)


def run(*arguments: str) -> str:
    """A command to its end; the JSON object that it printed last."""
    done = subprocess.run(python("-m", "flows", *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        raise RuntimeError(f"lakeloop {arguments[0]} ended with status {done.returncode}")
    return done.stdout[done.stdout.find("{") :]


def judged() -> dict[str, Any]:
    """How many rows there are of what must be none; and that what was served are the weights that were registered."""
    found = {name: len(rows(sql)) for name, sql in MUST_BE_NONE.items()}
    failed = [one.name for one in checks.run(whole=True) if one.failed]
    made = rows(
        "select weights_path, weights_digest from model_versions where version in (select version from deployments)"
    )
    torn = [path for path, digest in made if weights_digest(Path(path)) != digest]
    ((episodes, calls),) = rows(
        "select count(*), sum(n_calls) from episodes join dispatches using (episode_id) where loop_id like 'kills-%'"
    )
    return {"episodes": episodes, "calls": calls, **found, "checks_failed": failed, "served_torn": len(torn)}


def rows(sql: str) -> list[Any]:
    with connect() as connection:
        return connection.execute(sql).fetchall()


if __name__ == "__main__":
    main()
