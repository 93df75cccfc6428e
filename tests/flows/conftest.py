"""Real runs on the real stack: as commands, and as runs of deployments through Prefect's API."""

import os
import subprocess
import sys
import time

import httpx
import pytest

from tasks.stack import processes
from tasks.stack.settings import ROOT

ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Deployments:
    """What the UI does: start a run of a deployment, look at it."""

    def __init__(self, settings):
        self.settings = settings
        self.http = httpx.Client(base_url=settings.prefect_url + "/", timeout=30, trust_env=False)

    def start(self, name, **parameters):
        """Start a run; its id."""
        found = self.http.get(f"deployments/name/{name}/{name}").raise_for_status().json()
        made = self.http.post(f"deployments/{found['id']}/create_flow_run", json={"parameters": parameters})
        return made.raise_for_status().json()["id"]

    def ended(self, run_id, *, deadline_s=180):
        """Wait for a run's end; its final state."""
        deadline = time.monotonic() + deadline_s
        while (state := self.http.get(f"flow_runs/{run_id}").raise_for_status().json()["state"])["type"] not in ENDED:
            assert time.monotonic() < deadline, f"run {run_id} is {state['type']}: {self.log()}"
            time.sleep(0.3)
        return state

    def complete(self, *run_ids):
        """Wait until these runs have completed."""
        for run_id in run_ids:
            state = self.ended(run_id)
            assert state["type"] == "COMPLETED", f"{state['message']}\n{self.log()}"

    def runs(self, name):
        """Every run of a flow."""
        body = {"flows": {"name": {"any_": [name]}}}
        return self.http.post("flow_runs/filter", json=body).raise_for_status().json()

    def log(self):
        return processes.tail("worker", self.settings.home, lines=60)


@pytest.fixture(scope="module")
def deployments(stack):
    made = Deployments(stack)
    yield made
    made.http.close()


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
