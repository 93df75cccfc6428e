"""Any command-line agent, as it is: a program that works on the problem's files in a box whose only way out is the gateway.

A definition, a TOML file, says how it is called and what it needs. Its model calls are recorded by the gateway and the work
tree it leaves is graded; what it prints is kept as the episode's one action. It never learns that it is being trained.
"""

import re
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lakehouse.records import Status, dumps, now
from sandboxes.agents.base import AgentFailure, Ending, Job, Program, Step
from sandboxes.problems.base import Observation

PLACEHOLDERS = (
    "base_url",  # of OpenAI's API, ends in /v1
    "root_url",  # the same without /v1, as Anthropic's SDK takes it
    "api_key",
    "model",
    "problem",  # the statement
    "folder",  # where `files` and `folder` lie in the box
    "temperature",
    "top_p",
    "max_tokens",
    "max_turns",
)
PLACEHOLDER = re.compile(
    r"\{\{[a-z_]+\}\}|\{([a-z_]+)\}"
)  # `{{task}}` is another language's, and matches without a name
SHIPPED = Path(__file__).with_name("commands")
OUTSIDE_S = 900.0  # what a program may take where there is no episode around it


class DefinitionError(ValueError):
    """A definition that cannot be used. The text names the file, the cause and the remedy."""


class CommandAgent(BaseModel):
    """A definition, and the agent that it defines. `command`, `environment` and `files` may hold `PLACEHOLDERS`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    follows_plan: ClassVar[bool] = False

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")
    command: list[str] = Field(min_length=1)
    environment: dict[str, str] = {}
    files: dict[str, str] = {}  # text files by path below {folder}
    folder: Path | None = None  # of files that are put into {folder} as they are; relative to the definition
    python: list[str] = []  # packages of its image, NAME==VERSION
    debian: list[str] = []
    image: str | None = None  # an image of one's own instead
    kinds: list[str] = ["swe"]  # of problems; they must have a work tree
    timeout_s: float | None = Field(default=None, gt=0)  # None: what the episode has left; its deadline holds besides
    memory_mb: int = Field(default=2048, ge=64)
    processes: int = Field(default=256, ge=8)

    @model_validator(mode="after")
    def _sound(self) -> "CommandAgent":
        texts = [*self.command, *self.environment.values()]
        unknown = {name for text in texts for name in PLACEHOLDER.findall(text) if name} - set(PLACEHOLDERS)
        if unknown:
            raise ValueError(f"no placeholder {{{min(unknown)}}}; there are {', '.join(PLACEHOLDERS)}")
        if self.image and (self.python or self.debian):
            raise ValueError("`image` is one of your own: it takes the place of `python` and `debian`")
        if self.folder and not self.folder.is_dir():
            raise ValueError(f"`folder`: {self.folder} is no folder")
        return self

    async def run(self, job: Job) -> Ending:
        """The command, to its end. Exit status 0 is the agent's own end, whatever it achieved; any other is its failure."""
        if job.programs is None:
            raise AgentFailure("no program can be run here: the problem has no work tree")
        values = self._values(job, job.programs.base_url, job.programs.folder)
        program = self.program(values, at_most_s=job.deadline.left())
        started_at, start = now(), time.monotonic()
        ran = await job.programs.run(program)
        seconds = time.monotonic() - start
        said = ran.output.replace(job.endpoint.api_key, "[the session's key]")
        ended = "stopped at its time limit" if ran.exit_code is None else f"exit {ran.exit_code}"
        seen = Observation(f"{ended}\n{said}", is_error=ran.exit_code != 0)
        tree = None if job.keep is None else await job.keep()
        job.steps.append(Step(None, self.name, dumps({"command": self.command}), seen, seconds, started_at, tree))
        if ran.exit_code is None:
            raise TimeoutError(f"{self.command[0]} did not end within {program.timeout_s:.0f} s")
        if ran.exit_code != 0:
            raise AgentFailure(f"{self.command[0]} ended with exit status {ran.exit_code}: {said[-1000:].strip()}")
        return Ending(Status.OK, by_model=True)

    def program(self, values: Mapping[str, str], *, at_most_s: float = OUTSIDE_S) -> Program:
        """What is to be run, with values in the place of their placeholders."""
        return Program(
            argv=[fill(text, values) for text in self.command],
            env={name: fill(text, values) for name, text in self.environment.items()},
            files=self._files(values),
            image=self.image,
            python=self.python,
            debian=self.debian,
            timeout_s=at_most_s if self.timeout_s is None else min(self.timeout_s, at_most_s),
            memory_mb=self.memory_mb,
            processes=self.processes,
        )

    @staticmethod
    def _values(job: Job, base_url: str, folder: str) -> dict[str, str]:
        return {
            "base_url": base_url,
            "root_url": base_url.removesuffix("/v1"),
            "api_key": job.endpoint.api_key,
            "model": job.endpoint.model,
            "problem": job.statement,
            "folder": folder,
            "temperature": str(job.sampling.temperature),
            "top_p": str(job.sampling.top_p),
            "max_tokens": str(job.sampling.max_tokens),
            "max_turns": str(job.sampling.max_turns),
        }

    def _files(self, values: Mapping[str, str]) -> dict[str, bytes]:
        found = [path for path in sorted(self.folder.rglob("*")) if path.is_file()] if self.folder else []
        own = {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in found if self.folder}
        return own | {name: fill(text, values).encode() for name, text in self.files.items()}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values in the place of their placeholders; what is no placeholder stays as it is."""
    return PLACEHOLDER.sub(lambda found: values.get(found[1] or "", found[0]), text)


def read(path: Path) -> CommandAgent:
    """The agent that a file defines. DefinitionError where it defines none."""
    try:
        said = tomllib.loads(path.read_text())
        if isinstance(said.get("folder"), str):
            said["folder"] = path.resolve().parent / said["folder"]
        return CommandAgent.model_validate(said)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())
        raise DefinitionError(f"{path}: {wrong}") from error
    except (OSError, ValueError) as error:
        raise DefinitionError(f"{path}: {error}") from error


def shipped() -> list[CommandAgent]:
    """Those that come with Lakeloop."""
    return [read(path) for path in sorted(SHIPPED.glob("*.toml"))]
