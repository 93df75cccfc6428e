"""Task folders. Harbor: task.toml, instruction.md, environment/, tests/test.sh, solution/solve.sh. terminal-bench: task.yaml
with the instruction, Dockerfile, run-tests.sh, tests/, solution.sh.
"""

import tomllib
from pathlib import Path
from typing import Any

import yaml

from lakehouse.records import Problem, now
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.terminal.docker_file import NETWORK, files_below, recipe
from sandboxes.problems.terminal.spec import Spec, packed

DIFFICULTY = {"easy": 0.3, "medium": 0.6, "hard": 0.9}
PYTEST = ["python3", "-m", "pytest", "-p", "no:cacheprovider", "-rA"]


def problems(path: Path, terms: Terms) -> list[Problem]:
    """The task in this folder, or those in the folders directly in it. BadRow for the first that a box cannot play."""
    if _is_task(path):
        return [_problem(path, terms)]
    tasks = sorted(folder for folder in path.iterdir() if folder.is_dir() and _is_task(folder)) if path.is_dir() else []
    if not tasks:
        raise BadRow(f"{path} holds no task: no task.toml (Harbor) and no task.yaml (terminal-bench)")
    return [_problem(folder, terms) for folder in tasks]


def _is_task(folder: Path) -> bool:
    return (folder / "task.toml").is_file() or (folder / "task.yaml").is_file()


def _problem(folder: Path, terms: Terms) -> Problem:
    harbor = (folder / "task.toml").is_file()
    about, instruction = _harbor(folder) if harbor else _terminal_bench(folder)
    image = terms.image or about["image"]
    made = recipe(folder / "environment" if harbor else folder, image=image is not None)
    tests = (
        {path: packed(content) for path, content in files_below(folder / "tests").items()}
        if (folder / "tests").is_dir()
        else {}
    )
    script = folder / ("tests/test.sh" if harbor else "run-tests.sh")
    solution = folder / ("solution/solve.sh" if harbor else "solution.sh")
    spec = Spec(
        form="harbor" if harbor else "terminal-bench",
        image=image,
        workdir=made.workdir,
        setup=made.setup,
        files={path: packed(content) for path, content in made.files.items()},
        tests=tests | ({} if harbor else {"run-tests.sh": _text(script)}),
        grader=_grader(script, tests),
        solution=_text(solution),
        agent_s=about["agent_s"],
        verifier_s=about["verifier_s"],
        env=made.env,
    )
    return Problem(
        problem_id=f"terminal/{terms.name}/{folder.name}",
        kind="terminal",
        source=terms.name,
        split=terms.split,
        title=folder.name,
        prompt=spec.moved(instruction.strip()),
        spec=spec.model_dump_json(),
        licence=terms.licence,
        allowed_uses=list(terms.allowed_uses),
        difficulty=DIFFICULTY.get(str(about["difficulty"]), 0.5),
        oracle_passed=False,
        null_failed=False,
        ungated=True,  # until `lakeloop problems import` has run the gates
        created_at=now(),
    )


def _harbor(folder: Path) -> tuple[dict[str, Any], str]:
    try:
        said = tomllib.loads(_text(folder / "task.toml"))
    except tomllib.TOMLDecodeError as error:
        raise BadRow(f"{folder / 'task.toml'} is not TOML: {error}") from error
    about = {
        "image": said.get("environment", {}).get("docker_image"),
        "difficulty": said.get("metadata", {}).get("difficulty"),
        "agent_s": said.get("agent", {}).get("timeout_sec", 600.0),
        "verifier_s": said.get("verifier", {}).get("timeout_sec", 180.0),
    }
    return about, _text(folder / "instruction.md")


def _terminal_bench(folder: Path) -> tuple[dict[str, Any], str]:
    if (folder / "solution.yaml").is_file() and not (folder / "solution.sh").is_file():
        raise BadRow(f"{folder}: a solution in keystrokes (solution.yaml) cannot be played: solution.sh is needed")
    try:
        said = yaml.safe_load(_text(folder / "task.yaml"))
    except yaml.YAMLError as error:
        raise BadRow(f"{folder / 'task.yaml'} is not YAML: {error}") from error
    if not isinstance(said, dict) or not isinstance(said.get("instruction"), str):
        raise BadRow(f"{folder / 'task.yaml'} has no 'instruction'")
    about = {
        "image": None,
        "difficulty": said.get("difficulty"),
        "agent_s": said.get("max_agent_timeout_sec", 600.0),
        "verifier_s": said.get("max_test_timeout_sec", 180.0),
    }
    return about, said["instruction"]


def _grader(script: Path, tests: dict[str, str]) -> list[str]:
    """The tests' own script; where that would install something first, pytest on the tests, which every box of ours has."""
    text = _text(script)
    fetches = next((line.strip() for line in text.splitlines() if NETWORK.search(line.partition("#")[0])), None)
    if fetches is None:
        return ["bash", script.name]
    python = sorted(path for path in tests if Path(path).name.startswith("test_") and path.endswith(".py"))
    if not python:
        raise BadRow(
            f"{script}: {fetches!r} needs a network, boxes have none, and there are no pytest tests to run instead"
        )
    return [*PYTEST, *python]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRow(f"{path} cannot be read: {error}") from error
