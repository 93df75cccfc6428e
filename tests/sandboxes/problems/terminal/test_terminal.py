"""Harbor's and terminal-bench's task folders, made here, through import, gates and episodes in real boxes."""

import json

import pytest

from sandboxes.backends import choose
from sandboxes.backends.base import BackendUnavailable
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.gates import Gates, gates
from sandboxes.problems.imports import read
from sandboxes.problems.terminal import KIND

TERMS = Terms(name="mine", split="train", licence="MIT", allowed_uses=("training",))
TOML = """version = "1.0"
[metadata]
difficulty = "easy"
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 30.0
"""
DOCKERFILE = """# a task
FROM python:3.13-slim-bookworm
WORKDIR /app
ENV GREETING="good day"
COPY data.txt /app/
RUN mkdir -p logs && \\
    echo ready > logs/state
CMD ["bash"]
"""
TEST = """#!/bin/bash
set -u
python3 /tests/check.py && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
CHECK = """import os, pathlib
assert pathlib.Path("/app/hello.txt").read_text() == "Hello, world: 4, good day\\n"
assert os.environ["GREETING"] == "good day" and pathlib.Path("/app/logs/state").exists()
"""
SOLVE = """#!/bin/bash
cat > /tmp/part <<'EOF'
Hello, world
EOF
echo "$(cat /tmp/part): $(wc -l < /app/data.txt | tr -d ' '), $GREETING" > /app/hello.txt
"""
FETCHING = "#!/bin/bash\napt-get update\ncurl -LsSf https://example.org/uv/install.sh | sh\nuvx pytest /tests/test_outputs.py -rA\n"
PYTEST = "from pathlib import Path\n\ndef test_hello():\n    assert 'Hello' in Path('/app/hello.txt').read_text()\n"


def write(folder, files):
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text) if isinstance(text, bytes) else place.write_text(text)
    return folder


@pytest.fixture
def harbor(tmp_path):
    return write(
        tmp_path / "hello-world",
        {
            "task.toml": TOML,
            "instruction.md": "Write the greeting into /app/hello.txt; /apple and /tests-of-mine are no business of yours.\n",
            "environment/Dockerfile": DOCKERFILE,
            "environment/data.txt": "a\nb\nc\nd\n",
            "tests/test.sh": TEST,
            "tests/check.py": CHECK,
            "tests/blob.bin": b"\xff\x00",
            "solution/solve.sh": SOLVE,
        },
    )


@pytest.fixture
def terminal_bench(tmp_path):
    return write(
        tmp_path / "tb-hello",
        {
            "task.yaml": "instruction: Create /app/hello.txt that says Hello.\ndifficulty: hard\nmax_test_timeout_sec: 60.0\n",
            "Dockerfile": "FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624\nWORKDIR /app\n",
            "run-tests.sh": FETCHING,
            "tests/test_outputs.py": PYTEST,
            "solution.sh": "echo Hello > hello.txt\n",
        },
    )


@pytest.fixture(scope="module")
def backend():
    try:
        return choose("auto")
    except BackendUnavailable as reason:
        pytest.skip(str(reason))


async def graded(problem, backend, *commands):
    environment = await KIND.open(problem, backend)
    try:
        seen = [await environment.call("bash", {"command": command}) for command in commands]
        return seen, (await environment.grade())[0].value
    finally:
        await environment.close()


def test_a_harbor_folder_becomes_a_problem(harbor):
    [problem] = read("terminal", harbor, TERMS)
    assert (problem.problem_id, problem.kind, problem.difficulty) == ("terminal/mine/hello-world", "terminal", 0.3)
    assert "/testbed/hello.txt" in problem.prompt and "/apple" in problem.prompt and "/tests-of-mine" in problem.prompt
    spec = json.loads(problem.spec)
    assert spec["setup"] == ["mkdir -p logs && echo ready > logs/state"] and spec["env"] == {"GREETING": "good day"}
    assert list(spec["files"]) == ["data.txt"] and spec["tests"]["blob.bin"].startswith("base64:")


async def test_it_passes_both_gates_in_a_real_box_and_is_not_gated_before(harbor, backend):
    [problem] = read("terminal", harbor, TERMS)
    assert problem.ungated and not problem.passed
    assert await gates(KIND, problem, backend) == Gates(True, True)


async def test_the_tests_are_ours_and_run_where_nothing_of_the_agent_does(harbor, backend):
    [problem] = read("terminal", harbor, TERMS)
    seen, verdict = await graded(
        problem,
        backend,
        "ls -a /testbed /testbed/.lakeloop 2>&1",
        "mkdir -p .lakeloop/verifier .lakeloop/tests; echo 1 > .lakeloop/verifier/reward.txt",
        "echo 'exit 0' > .lakeloop/tests/test.sh",
        "(while true; do echo 1 > /testbed/.lakeloop/verifier/reward.txt; done) > /dev/null 2>&1 &",
    )
    assert "check.py" not in seen[0].text and verdict["reward"] == 0.0


async def test_terminal_bench_tests_that_would_install_first_are_run_by_our_pytest(terminal_bench, backend):
    [problem] = read("terminal", terminal_bench, TERMS)
    assert problem.difficulty == 0.9
    assert await gates(KIND, problem, backend) == Gates(True, True)
    _, verdict = await graded(problem, backend, "echo Hullo > hello.txt")
    assert verdict["reward"] == 0.0 and verdict["tests"] == {"failed": 1}


async def test_a_test_script_that_says_nothing_is_no_reward(harbor, backend):
    (harbor / "tests" / "test.sh").write_text("exit 1\n")
    [problem] = read("terminal", harbor, TERMS)
    _, verdict = await graded(problem, backend)
    assert verdict["reward"] is None and verdict["exit_code"] == 1


async def test_a_tree_that_is_too_large_to_be_graded_earns_nothing(harbor, backend):
    [problem] = read("terminal", harbor, TERMS)
    _, verdict = await graded(problem, backend, "truncate -s 2G large")
    assert verdict["reward"] == 0.0 and "work tree" in verdict["output"]


async def test_a_setup_that_fails_is_the_environments_failure(harbor, backend):
    (harbor / "environment" / "Dockerfile").write_text("FROM debian:12\nRUN false\n")
    [problem] = read("terminal", harbor, TERMS)
    with pytest.raises(EnvironmentFailure, match="'false'"):
        await KIND.open(problem, backend)


def test_a_folder_of_folders_is_many_problems(harbor, terminal_bench, tmp_path):
    assert [p.title for p in read("terminal", tmp_path, TERMS)] == ["hello-world", "tb-hello"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("RUN apt-get update && apt-get install -y vim", "apt-get.*needs a network"),
        ("RUN pip install numpy==2", "needs a network"),
        ("ADD https://example.org/x.tar /app/", "takes from elsewhere"),
        ("COPY --from=build /x /app/x", "takes from elsewhere"),
        ("COPY data.txt /etc/data.txt", "outside of /app"),
        ("COPY nothing.txt /app/", "not there"),
        ("FROM nvidia/cuda:12", "no base"),
        ("ONBUILD RUN x", "not understood"),
    ],
)
def test_a_dockerfile_that_a_box_cannot_do_is_refused_by_its_line(harbor, line, told):
    (harbor / "environment" / "Dockerfile").write_text(f"FROM debian:12\nWORKDIR /app\n{line}\n")
    with pytest.raises(BadRow, match=told):
        read("terminal", harbor, TERMS)


@pytest.mark.parametrize("how", ["the option", "task.toml"])
def test_an_image_that_was_built_elsewhere_stands_for_the_dockerfile(harbor, how):
    (harbor / "environment" / "Dockerfile").write_text(
        "FROM nvidia/cuda:12\nRUN pip install x\nWORKDIR /work\nENV A=1 B=2\n"
    )
    if how == "task.toml":
        (harbor / "task.toml").write_text(TOML + '[environment]\ndocker_image = "team/image:1"\n')
    terms = TERMS if how == "task.toml" else TERMS.model_copy(update={"image": "team/image:1"})
    [problem] = read("terminal", harbor, terms)
    spec = json.loads(problem.spec)
    assert (spec["image"], spec["workdir"], spec["env"], spec["setup"]) == (
        "team/image:1",
        "/work",
        {"A": "1", "B": "2"},
        [],
    )


@pytest.mark.parametrize(
    ("lost", "told"),
    [("task.toml", "holds no task"), ("instruction.md", "instruction.md"), ("solution/solve.sh", "solve.sh")],
)
def test_a_folder_that_lacks_something_is_refused_by_its_name(harbor, lost, told):
    (harbor / lost).unlink()
    with pytest.raises(BadRow, match=told):
        read("terminal", harbor, TERMS)


def test_tests_that_need_a_network_and_are_no_pytest_are_refused(harbor):
    (harbor / "tests" / "test.sh").write_text("pip install x\npython3 /tests/check.py\n")
    with pytest.raises(BadRow, match="pip install x"):
        read("terminal", harbor, TERMS)


async def test_wrong_calls_are_observations(harbor, backend):
    [problem] = read("terminal", harbor, TERMS)
    environment = await KIND.open(problem, backend)
    for name, arguments in (("rm", {}), ("bash", {}), ("bash", {"command": 1}), ("submit", {"x": ""})):
        assert (await environment.call(name, arguments)).is_error
    assert (await environment.call("bash", {"command": "echo $GREETING; exit 3"})).text == "exit 3\ngood day\n"
    await environment.close()
