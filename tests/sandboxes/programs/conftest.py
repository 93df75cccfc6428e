"""Episodes whose agent is a program in a box, over the real gateway and the scripted engine."""

import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lakehouse.records import Dispatch, Problem, episode_id, group_id, now
from sandboxes import backends
from sandboxes.agents import CommandAgent, Sampling
from sandboxes.backends.base import BackendUnavailable
from sandboxes.backends.runner.common import AGENT
from sandboxes.backends.trees import Tree
from sandboxes.episode import run_episode
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.server.boxes import Door, open_to_boxes
from sandboxes.gateway.server.listen import Embedded, config, serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.base import Fact
from sandboxes.problems.kinds import KINDS

BROKEN = b"def add(a, b):\n    return a - b\n"


class Bench:
    """The kind `swe` with one problem: a file to repair. Its evidence is the tree that was left."""

    name = "swe"
    image = None

    def __init__(self):
        self.graded = 0
        self.tree = {}

    async def open(self, problem, backend, prompts):
        self.backend_name = backend.name
        self.tree = Tree({"calc.py": BROKEN, "run.sh": b"#!/bin/sh\n"}, executable=frozenset(["run.sh"]))
        return self

    def expert(self, problem):
        return ()

    async def grade(self):
        self.graded += 1
        return [Fact("tree", {path: content.decode() for path, content in self.tree.items()}, "test")]

    async def close(self):
        pass


@pytest.fixture
def bench(monkeypatch):
    kind = Bench()
    monkeypatch.setitem(KINDS, "swe", kind)
    return kind


@pytest.fixture(
    params=[
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("bubblewrap", marks=pytest.mark.bubblewrap),
    ],
)
def backend(request):
    return _backend(request.param)


@pytest.fixture
def bubblewrap():
    return _backend("bubblewrap")


def _backend(name):
    try:
        return backends.prepare(name)
    except BackendUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def play(tmp_path):
    """`await play(agent, backend, engine)`: an episode of the bench's problem."""

    async def playing(agent, backend, engine, *, deadline_s=60.0, door=True, max_turns=6):
        problem = Problem(
            problem_id="swe/calc/1", kind="swe", source="calc", split="train", title="add", prompt="add() subtracts.",
            spec="{}", licence="MIT", allowed_uses=["training"], difficulty=0.1, oracle_passed=True, null_failed=True,
            created_at=now(),
        )  # fmt: skip
        dispatch = Dispatch(
            episode_id=episode_id("run", problem.problem_id, 0), run_id="run", group_id=group_id("run", problem.problem_id),
            problem_id=problem.problem_id, sample_index=0, agent=agent.name, mode="policy", purpose="train", created_at=now(),
        )  # fmt: skip
        async with _gateway(engine, tmp_path / "home") as (client, path):
            return await run_episode(
                dispatch,
                problem,
                gateway=client,
                backend=backend,
                sampling=Sampling(max_tokens=400, max_turns=max_turns),
                deadline_s=deadline_s,
                model_name=engine.model,
                model_version=1,
                agent=agent,
                door=path if door else None,
            )

    return playing


@asynccontextmanager
async def _gateway(engine, home):
    """Its client, and its door for boxes, below no folder that is one user's alone."""
    folder = Path(tempfile.mkdtemp(prefix="door-"))
    folder.chmod(0o755)  # noqa: ASYNC240 - a test's own folder
    door = Door(folder / "door" / "gateway.sock", AGENT if os.geteuid() == 0 else None)
    door.prepare()
    try:
        async with engine.serve() as engine_url:
            gateway = Gateway(Settings(engine=engine_url, home=home, model=engine.model))
            app = gateway.app()
            beside = Embedded(config(app, lifespan=False))
            beside.started = True
            async with (
                serving(app) as url,
                open_to_boxes(door, app, gateway.journal, beside),
                GatewayClient(url, gateway.operator_key) as client,
            ):
                yield client, door.path
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def agent():
    """`agent(program)`: a command-line agent that is a Python program of standard library, with `ask(text)` at hand."""

    def make(program, **more):
        return CommandAgent(
            name="mine", command=["python3", "{folder}/agent.py", "{problem}"], environment=ENVIRONMENT,
            files={"agent.py": ASK + program}, **more,
        )  # fmt: skip

    return make


ENVIRONMENT = {"OPENAI_BASE_URL": "{base_url}", "OPENAI_API_KEY": "{api_key}", "MODEL": "{model}"}
ASK = """
import json, os, pathlib, sys, time, urllib.request

def ask(text):
    body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": text}], "max_tokens": 50}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

"""
