"""Real runs on the real stack: as commands, and as runs of deployments through Prefect's API."""

import json
import os
import shutil
import subprocess
import sys
import time

import httpx
import pytest

from tasks.registry.versions import Registry
from tasks.serving import models
from tasks.serving.engine import Engine
from tasks.stack import processes
from tasks.stack.settings import ROOT

ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


DEADLINE_S = 600  # of a run that hangs: the slowest one takes two minutes on two idle cores


class Deployments:
    """What the UI does: start a run of a deployment, look at it."""

    def __init__(self, settings):
        self.settings = settings
        self.http = httpx.Client(base_url=settings.prefect_url + "/", timeout=30, trust_env=False)

    def start(self, name, **parameters):
        """Start a run; its id."""
        found = self.ask("GET", f"deployments/name/{name}/{name}")
        return self.ask("POST", f"deployments/{found['id']}/create_flow_run", {"parameters": parameters})["id"]

    def ended(self, run_id, *, deadline_s=DEADLINE_S):
        """Wait for a run's end; its final state."""
        deadline = time.monotonic() + deadline_s
        while (state := self.ask("GET", f"flow_runs/{run_id}")["state"])["type"] not in ENDED:
            assert time.monotonic() < deadline, f"run {run_id} is {state['type']}: {self.log()}"
            time.sleep(0.3)
        return state

    def complete(self, *run_ids, deadline_s=DEADLINE_S):
        """Wait until these runs have completed."""
        for run_id in run_ids:
            state = self.ended(run_id, deadline_s=deadline_s)
            assert state["type"] == "COMPLETED", f"{state['message']}\n{self.log()}"

    def runs(self, name):
        """Every run of a flow."""
        return self.every("flow_runs", flows={"name": {"any_": [name]}})

    def artifacts(self):
        """Every artifact."""
        return self.every("artifacts")

    def every_automation(self):
        """Every automation; this route knows no sorting by id."""
        return self.ask("POST", "automations/filter", {"limit": 200})

    def every(self, what, **asked):
        """All rows of a filter route, which gives at most 200 at a time."""
        rows = []
        while page := self.ask("POST", f"{what}/filter", {**asked, "sort": "ID_DESC", "offset": len(rows)}):
            rows += page
        return rows

    def ask(self, method, path, body=None):
        """The server's answer; 503, asked again, is a database that was locked for a moment."""
        for _ in range(20):
            answer = self.http.request(method, path, json=body)
            if answer.status_code != 503:
                break
            time.sleep(0.5)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def log(self):
        return processes.tail("worker", self.settings.home, lines=60)


@pytest.fixture(scope="module")
def deployments(stack):
    made = Deployments(stack)
    yield made
    made.http.close()


@pytest.fixture(scope="module")
def registry(stack):
    return Registry(stack.mlflow_url)


@pytest.fixture(scope="module")
def engine(stack):
    with Engine(stack.engine) as engine:
        yield engine


@pytest.fixture(scope="module")
def source(stack, engine):
    """The folder of the weights that the engine was started with."""
    shipped = stack.model in ("tiny", "smollm2")
    return models.resolve(stack.model, stack.home) if shipped else engine.folder()


@pytest.fixture(scope="module")
def sources(stack):
    """Package sources fetched for the repository's own home are not fetched again."""
    held, cache = ROOT / ".lakeloop" / "cache" / "sdists", stack.home.cache / "sdists"
    if held.is_dir() and not cache.exists():
        shutil.copytree(held, cache)


@pytest.fixture(scope="module")
def with_weights(stack):
    """Runs a program that prints a line of JSON, which this gives."""

    def run(program, *arguments, given=None):
        ended = subprocess.run(
            [sys.executable, "-c", program, *arguments], env=os.environ | {"HF_HUB_OFFLINE": "1"}, input=given,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def command(stack):
    """Starts `lakeloop ARGUMENTS` as a process of its own, in the environment of now; what is left is killed at the end."""
    started = []

    def start(*arguments, **environment):
        process = subprocess.Popen(
            [sys.executable, "-m", "flows", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
