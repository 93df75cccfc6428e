"""A taskset of the package `verifiers` (0.4, its v1 API) as an application outside: it plays, its own rubric is the reward.

python docs/examples/verifiers_env.py TASKSET --problems problems.jsonl  # run its gates, write the problems' rows
python docs/examples/verifiers_env.py TASKSET --samples 4                # the served model plays every task four times

Run it with a Python that has verifiers and the taskset; nothing of Lakeloop's is needed there.
"""

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from session import GATEWAY, MODEL, post, start

try:
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import load_environment
except ImportError as error:
    sys.exit(f"this Python has no verifiers ({error}): pip install 'verifiers>=0.4', and the taskset's own package")

NULL = "I do not know."  # what the null gate says
WAYS = ("{}", "\\boxed{{{}}}", "<answer>{}</answer>", "#### {}")  # in which an oracle may have to say the answer


def environment(taskset: str, harness: str) -> Any:
    """The taskset's environment, its agent's programs as processes of this machine."""
    agent = {"harness": {"id": harness}, "runtime": {"type": "subprocess"}}
    return load_environment(vf.SingleAgentEnvConfig.model_validate({"taskset": {"id": taskset}, "agent": agent}))


async def play(env: Any, task: Any, base_url: str, key: str, model: str) -> Any:
    """One episode of theirs against an endpoint."""
    variable = f"SESSION_KEY_{id(task)}_{time.monotonic_ns()}"  # verifiers takes keys from the environment only
    os.environ[variable] = key
    client = vf.EvalClientConfig(base_url=base_url, api_key_var=variable)
    try:
        return await env.run_slot(env.slots(task)[0], vf.ModelContext(model=model, client=client))
    finally:
        del os.environ[variable]


def reward_of(episode: Any) -> float | None:
    """The agent's reward; None where an error of theirs, or no scoring, left none."""
    if not episode.ok or episode.last_error or not episode.traces or episode.traces[0].errors:
        return None
    rewards = episode.traces[0].rewards
    return None if not rewards or None in rewards.values() else episode.traces[0].reward


async def sample(env: Any, task: Any, problem_id: str) -> None:
    """One gateway session. An episode that broke gives no reward: it is nobody's success or failure."""
    session = start(problem_id)
    episode = await play(env, task, f"{GATEWAY}/v1", session["api_key"], MODEL)
    reward = reward_of(episode)
    if reward is not None:
        scores = {name: one.value for name, one in episode.traces[0].rewards.items()}
        told = {"reward": reward, "scope": "episode", "labeller": "verifiers", "reason": json.dumps(scores)}
        post("/rl/set_reward", session["reward_key"], told)
    post("/rl/end_session", session["reward_key"], {})
    print(f"{session['session_id']}: reward {reward}" + ("" if reward is not None else f", {episode.last_error}"))


@contextmanager
def saying(text: str) -> Iterator[str]:
    """The URL of an endpoint whose model always says this, streamed, as verifiers asks for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for delta, finish in (({"role": "assistant", "content": text}, None), ({}, "stop")):
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                chunk = {
                    "id": "x",
                    "object": "chat.completion.chunk",
                    "created": 0,
                    "model": "gate",
                    "choices": [choice],
                }
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


async def row(env: Any, task: Any, problem_id: str, split: str) -> dict[str, Any]:
    """The row for `lakeloop problems import external`, with what the gates say: the task's own answer scores, silence does not."""

    async def scores(text: str) -> float | None:
        with saying(text) as url:
            return reward_of(await play(env, task, url, "gate", "gate"))

    answer, null = getattr(task.data, "answer", None), await scores(NULL)
    oracle = False
    for way in WAYS if answer is not None else ():
        oracle = oracle or (await scores(way.format(answer)) or 0) >= 1
    prompt = task.data.prompt_text
    return {
        "problem_id": problem_id,
        "title": prompt.strip().split("\n")[0][:80] or problem_id,
        "prompt": prompt,
        "split": split,
        "oracle_passed": oracle,
        "null_failed": null is not None and null < 1,
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("taskset")
    parser.add_argument("--harness", default="null", help="the program that plays, as verifiers names them")
    parser.add_argument("--tasks", type=int, default=100, help="the first so many")
    parser.add_argument("--samples", type=int, default=1, help="episodes per task")
    parser.add_argument("--split", choices=["train", "eval"], default="train")
    parser.add_argument("--problems", type=Path, help="write the rows of the problems to this file, and play nothing")
    given = parser.parse_args()
    env = environment(given.taskset, given.harness)
    tasks = list(env.taskset.take(given.tasks))
    name: Callable[[Any], str] = lambda task: f"external/verifiers/{given.taskset}/{task.key[:16]}"  # noqa: E731
    async with env.serving():
        if given.problems:
            rows = [await row(env, task, name(task), given.split) for task in tasks]
            given.problems.write_text("".join(json.dumps(one) + "\n" for one in rows))
            return
        for task in tasks:
            for _ in range(given.samples):
                await sample(env, task, name(task))


if __name__ == "__main__":
    asyncio.run(main())
