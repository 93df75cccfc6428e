"""The documentation says only what is there: links, commands, options, settings, paths, targets, tables."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from flows.cli.app import app
from flows.cli.runs import FLOWS
from lakehouse.query.named import queries
from lakehouse.schema import TABLES
from tasks.stack.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
SOURCES = ("flows", "tasks", "sandboxes", "lakehouse", "notebooks", "tests", "deploy", "docs")
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
ABSENT = {"tests/__init__.py"}  # named because it must not be there
LINK = re.compile(r"\]\(([^)\s]+)\)")

each_page = pytest.mark.parametrize("page", PAGES, ids=IDS)


def code(page: Path) -> Iterator[str]:
    """Every code span and every line of a fenced block; a line that ends within quotes goes on in the next."""
    text = page.read_text()
    for block in FENCE.findall(text):
        pending = ""
        for line in block.splitlines():
            pending = f"{pending} {line}" if pending else line
            if pending.count('"') % 2 == 0 and pending.count("'") % 2 == 0 and not pending.endswith("\\"):
                yield pending.strip()
                pending = ""
    yield from SPAN.findall(FENCE.sub("", text))


def commands(page: Path) -> Iterator[list[str]]:
    """The words after `lakeloop` of every command, without comments and placeholders that stand for a command."""
    for text in code(page):
        for part in text.split("&&"):
            match = re.match(r"(?:\.venv/bin/)?lakeloop (.+)", part.strip())
            words = shlex.split(match.group(1), comments=True) if match else []
            if words and words[0] not in ("...", "COMMAND"):
                yield words


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def options(words: list[str]) -> set[str] | None:
    """The options of a command, None where there is no such command."""
    found = typer.main.get_command(app)
    rest = list(words)
    while hasattr(found, "commands") and rest and not rest[0].startswith("-"):
        found = found.commands.get(rest.pop(0))
    if found is None:
        return None
    if words[0] in FLOWS:
        flow = getattr(importlib.import_module(f"flows.{words[0]}"), words[0])
        names = [name.replace("_", "-") for name in flow.parameters.model_dump()["properties"]]
        return {"--help", *(f"--{name}" for name in names), *(f"--{name.removesuffix('s')}" for name in names)}
    return {"--help", *(name for option in found.params for name in (*option.opts, *option.secondary_opts))}


@each_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


@each_page
def test_every_command_and_option_exists(page: Path) -> None:
    for words in commands(page):
        known = options(words)
        assert known is not None, f"{page.name}: lakeloop {' '.join(words)}"
        used = {word.split("=")[0] for word in words if word.startswith("--")}
        assert used <= known, f"{page.name}: lakeloop {' '.join(words)}"


def test_every_command_is_documented() -> None:
    named = {words[0] for page in PAGES for words in commands(page)}
    assert set(typer.main.get_command(app).commands) - named == set()


@each_page
def test_every_setting_exists(page: Path) -> None:
    fields = {f"LAKELOOP_{name.upper()}" for name in Settings.model_fields}
    read = {
        "LAKELOOP_HOME",
        "LAKELOOP_LAKE",
        "LAKELOOP_RUBRICS",
        "LAKELOOP_ALLOW_NO_CGROUP",
        "LAKELOOP_GRADE_AGAIN",
        "LAKELOOP_TEST_ENGINE",
        "LAKELOOP_TEST_INDUCTOR",
        "LAKELOOP_TESTS_WHOLE",
    }
    assert set(re.findall(r"LAKELOOP_[A-Z_]+", page.read_text())) - fields - read == set()


def test_every_setting_is_in_the_readme() -> None:
    listed = set(re.findall(r"^\| `(LAKELOOP_\w+)`", (ROOT / "README.md").read_text(), re.M))
    assert {f"LAKELOOP_{name.upper()}" for name in Settings.model_fields} - listed == set()


@each_page
def test_every_path_in_the_repository_exists(page: Path) -> None:
    for text in SPAN.findall(FENCE.sub("", page.read_text())):
        if re.fullmatch(rf"(?:{'|'.join(SOURCES)})/[\w./-]*", text) and text not in ABSENT:
            assert (ROOT / text).exists(), f"{page.name} names {text}"


@each_page
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for text in code(page):
        for words in re.findall(r"^make ((?:[a-z-]+ ?)+)", text):
            assert set(words.split()) <= targets, f"{page.name}: make {words}"


def test_the_tree_names_what_is_there() -> None:
    tree = next(block for block in FENCE.findall((ROOT / "README.md").read_text()) if block.startswith("flows/"))
    folders: list[str] = []
    for line in tree.splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()  # type: ignore[union-attr]
        folders[len(indent) // 2 :] = [name.rstrip("/")]
        assert (ROOT / "/".join(folders)).exists(), line


def test_every_question_is_on_the_page_of_queries() -> None:
    page = (ROOT / "docs" / "queries.md").read_text()
    told = set(re.findall(r"^\| (.+) \| `(\w+)` \| .*\|$", page, re.M))
    assert told == {(one.question, one.name) for one in queries()}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_architecture_page_has_each_table_with_its_key(table) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    key = ", ".join(f"`{name}`" for name in table.key)
    assert re.search(rf"^\| `{table.name}` \| .+ \| {key} \| .+ \|$", page, re.M)
