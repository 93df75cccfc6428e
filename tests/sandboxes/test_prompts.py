"""Prompts are templates in files: the shipped ones give what the shipped model was trained on, own ones replace them."""

import json
from hashlib import sha256

import pytest

from lakehouse.records import Problem, now
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.problems.python.env import PythonEnvironment
from sandboxes.problems.search import env as passages
from sandboxes.problems.search.documents import world as documents
from sandboxes.problems.search.env import SearchEnvironment
from sandboxes.problems.swe.env import SweEnvironment
from sandboxes.problems.terminal.env import TerminalEnvironment
from sandboxes.prompts import PLACES, SHIPPED, PromptError, read

STATEMENT = "Costs $5, ${five} or $$five?\n{problem} of ünïcode\n"


class Nothing:
    """As much of a spec as the conversation's start asks for."""

    shown = None


PROBLEM = Problem(
    problem_id="any/0",
    kind="any",
    source="pebble==1.0",
    split="train",
    title="hidden",
    prompt=STATEMENT,
    spec="{}",
    licence="MIT",
    allowed_uses=[],
    difficulty=0.5,
    oracle_passed=True,
    null_failed=True,
    created_at=now(),
)


def opened(name, prompts=SHIPPED):
    boxes = ScriptedBackend()
    made = {
        "python": lambda: PythonEnvironment(PROBLEM, Nothing(), boxes, prompts),
        "search": lambda: SearchEnvironment(passages.World(None, None), prompts.of(PROBLEM)),
        "search-documents": lambda: SearchEnvironment(documents.World(None, None), prompts.of(PROBLEM)),
        "swe": lambda: SweEnvironment(PROBLEM, Nothing(), {}, boxes, prompts),
        "terminal": lambda: TerminalEnvironment(PROBLEM, Nothing(), boxes, prompts),
    }
    return made[name]()


def hashed(value):
    return sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()


def write(folder, **texts):
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name.replace('_', '.')}.txt").write_text(text)
    return folder


# Of messages and tools as they were when the prompts were constants in Python, by which `tiny` was trained.
PINNED = {
    "python": (
        "824716fdebe5dedd8637ebe09e314c1bfa5a6b0b45db8b79aaf6ef8f2946815e",
        "705be2520e0b4b040eaf44a918efa39f28da85c84e1e25d6778e8d5ae397fa90",
    ),
    "search": (
        "72facd9d8d49b62fdbec89ccad23e51cac8ad220d26b237f55f7620d6f5e43f2",
        "ed5fb5bd06ef10066290c3d493941bc8b195fe2a7a7f31ea2f8c3d5ac97d959c",
    ),
    "search-documents": (
        "aeacbffcfa40619421a44be11b68a44deab510d33b50ebdabb65b9a1c1fe89e9",
        "9a179b69317696e80ad1b0b74b38f34ba04723b8082046146195fa365c23bf62",
    ),
    "swe": (
        "a3e7ff41e32cab837113bf741d7d5d738ff261bcb24fcbd13b47f0edcf4efe22",
        "73162cd2f13400c75572a9e062d3c115983713ddbf23612388b8f80865559d8d",
    ),
    "terminal": (
        "a1272d1b5a6657862415d47f443919c93b144fb4e23ba31b96f4be9d278ae9dd",
        "c3e5243673227055eb3a59673b5917f0c16cebe08c7e9f7c379fb7bbd26248c3",
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_what_a_model_reads_by_default_is_what_it_always_read(name):
    environment = opened(name)
    assert (hashed([dict(one) for one in environment.messages]), hashed(list(environment.tools))) == PINNED[name]


def test_what_the_closed_book_agent_asks_by_default_is_what_it_always_asked():
    asked = SHIPPED.of(PROBLEM).messages("closed-book", ())
    assert hashed(asked) == "7541d14251082e174f0826c8c3ae51020ae8ba6bbabfcca1647123df443fa42a"


def test_every_shipped_template_is_pinned():
    assert {name.partition(".")[0] for name in SHIPPED.texts} == {*PINNED, "closed-book"}
    assert SHIPPED.own == {}


@pytest.mark.parametrize("name", PINNED)
def test_an_own_template_is_filled_with_all_that_there_is(tmp_path, name):
    asked = " | ".join(f"${place}" for place in PLACES)
    (tmp_path / f"{name}.user.txt").write_text(f"$$ {asked}\n")
    prompts = read(tmp_path)
    environment = opened(name, prompts.of(PROBLEM, max_turns=7, max_tokens=33))
    system, user = environment.messages
    assert system == opened(name).messages[0]
    tool = environment.tools[-1]["function"]
    assert user["content"].startswith(f"$ {STATEMENT} | pebble==1.0 | ")
    assert user["content"].endswith(f"{tool['description']} | 7 | 33")
    assert f"\n{tool['name']}(" in user["content"]
    assert "hidden" not in user["content"]
    assert list(prompts.own) == [f"{name}.user.txt"]


def test_an_empty_system_template_is_no_system_message(tmp_path):
    (message,) = opened("swe", read(write(tmp_path, swe_system="\n"))).messages
    assert message == {"role": "user", "content": STATEMENT}


def test_another_text_has_another_digest_and_the_same_the_same(tmp_path):
    first, second, third = (
        read(write(tmp_path / name, swe_system=text)).own["swe.system.txt"]
        for name, text in (("a", "Repair it."), ("b", "Repair it.\n"), ("c", "Repair it!"))
    )
    assert first == second != third


THERE = "there are $problem, $source, $tools, $max_turns, $max_tokens"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("swe.system.txt", "Repair $repository.", f"swe.system.txt has the placeholder $repository; {THERE}"),
        ("swe.user.txt", "Repair it, with $tools.", "swe.user.txt lacks the placeholder $problem"),
        ("swe.user.txt", "Repair it, with $tools.", THERE),
        ("swe.system.txt", "It costs 5 $.", "swe.system.txt has a $ that begins no placeholder; write $$"),
        ("swe.system.md", "Repair it.", "swe.system.md replaces no prompt; there are closed-book.system.txt, "),
        ("swe.system.txt", b"\xff", "swe.system.txt cannot be read"),
        ("README.md", "Prompts.", "holds no prompt; there are closed-book.system.txt, "),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_file_the_cause_and_what_there_is(tmp_path, name, text, said):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PromptError) as refused:
        read(tmp_path)
    assert said in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(PromptError, match=r"no folder .*gone"):
        read(tmp_path / "gone")
