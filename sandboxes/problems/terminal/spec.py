"""A terminal problem's `spec`, and where its folders lie in a box."""

import base64
import json
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lakehouse.records import Problem
from sandboxes.backends.base import WORKDIR
from sandboxes.problems.base import EnvironmentFailure

OURS = ".lakeloop"  # of the work tree: what is only there while the tests run
TESTS = f"{OURS}/tests"
VERIFIER = f"{OURS}/verifier"


class Spec(BaseModel):
    """What a box needs. Files are text, or base64 after "base64:"; paths are relative to the folder they belong to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal["harbor", "terminal-bench"]
    image: str | None = None
    workdir: str  # as the task names it, such as /app; its content is the work tree
    setup: list[str] = []  # the Dockerfile's RUN lines
    files: dict[str, str] = {}  # of the work tree
    tests: dict[str, str]
    grader: list[str]  # the command that runs the tests
    solution: str  # a shell script
    agent_s: float = Field(default=600.0, gt=0)
    verifier_s: float = Field(default=180.0, gt=0)
    env: dict[str, str] = {}

    def moved(self, text: str) -> str:
        """A text of the task with the folders it names where they are in our boxes: only the work tree can be written to."""
        places = {"/logs/verifier": VERIFIER, "/logs": OURS + "/logs", "/tests": TESTS}
        for place, ours in {**places, self.workdir: ""}.items():
            text = _replaced(text, place.rstrip("/"), f"{WORKDIR}/{ours}".rstrip("/"))
        return text


def _replaced(text: str, place: str, ours: str) -> str:
    """The path `place` and what lies below it, not paths that merely end or begin alike."""
    if place in ("", WORKDIR):
        return text
    parts = text.split(place)
    total = parts[0]
    for part in parts[1:]:
        inner = (
            total[-1:].isalnum() or total[-1:] in ("_", "-", ".", "/") or part[:1].isalnum() or part[:1] in ("_", "-")
        )
        total += (place if inner else ours) + part
    return total


def packed(content: bytes) -> str:
    """A file's content as JSON can hold it."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(content).decode()


def unpacked(files: Mapping[str, str], spec: Spec, below: str = "") -> dict[str, bytes]:
    """Files for a box; in texts the task's folders are moved."""
    return {
        f"{below}/{path}" if below else path: (
            base64.b64decode(text.removeprefix("base64:")) if text.startswith("base64:") else spec.moved(text).encode()
        )
        for path, text in files.items()
    }


def read_spec(problem: Problem) -> Spec:
    """The problem's spec; EnvironmentFailure where it is not one of a terminal problem."""
    try:
        return Spec.model_validate(json.loads(problem.spec))
    except (ValueError, ValidationError) as error:
        raise EnvironmentFailure(f"{problem.problem_id}: the spec is not a terminal problem's: {error}") from error
