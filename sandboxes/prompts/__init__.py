"""What a model is told before it acts: templates, a file for each message. A folder of one's own may replace any of them.

`NAME.system.txt` is the system message, `NAME.user.txt` the message with the problem. Names are those of the kinds of
problems, and of tools and agents that differ: `search-documents`, `closed-book`. A file's last line break is not part of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any

from lakehouse.records import Problem, digest

FOLDER = Path(__file__).parent
PLACES = (
    "problem",  # the statement
    "source",  # the package, corpus or data set that the problem was made from
    "tools",  # a line for each: name(parameters): what it does
    "max_turns",  # of the episode, as `collect` was told
    "max_tokens",  # per turn, likewise
)
SYSTEM, USER = ".system.txt", ".user.txt"


class PromptError(ValueError):
    """Prompts that cannot be used. The text names the file, the cause and what there is."""


@dataclass(frozen=True)
class Prompts:
    """Templates by file name, and what goes into their places."""

    texts: Mapping[str, str]
    own: Mapping[str, str] = field(default_factory=dict)  # digest of each that replaces a shipped one
    problem: Problem | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    def of(self, problem: Problem, **limits: int) -> "Prompts":
        """Those for an episode of a problem, with its limits where they are known."""
        return replace(self, problem=problem, limits={**self.limits, **limits})

    def messages(self, name: str, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
        """The conversation's start. An empty system template is no system message: some models know none."""
        assert self.problem is not None  # `of` was asked first
        values = {"problem": self.problem.prompt, "source": self.problem.source, "tools": "\n".join(map(_line, tools))}
        said = {
            role: Template(self.texts[name + ending]).substitute(values, **self.limits)
            for role, ending in (("system", SYSTEM), ("user", USER))
        }
        return [{"role": role, "content": text} for role, text in said.items() if text or role == "user"]


def read(folder: Path | None) -> Prompts:
    """The shipped prompts, but for those that are in the folder. PromptError where it cannot be used."""
    if folder is None:
        return SHIPPED
    if not folder.is_dir():
        raise PromptError(f"no folder {folder} with prompts")
    found = {path.name: path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "README"))}
    known = ", ".join(SHIPPED.texts)
    if unknown := sorted(set(found) - set(SHIPPED.texts)):
        raise PromptError(f"{found[unknown[0]]} replaces no prompt; there are {known}")
    if not found:
        raise PromptError(f"{folder} holds no prompt; there are {known}")
    texts = {name: _template(path) for name, path in found.items()}
    return Prompts({**SHIPPED.texts, **texts}, {name: digest(text)[:12] for name, text in texts.items()})


def _template(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path} cannot be read: {error}") from error
    template, there = Template(text), ", ".join("$" + place for place in PLACES)
    if not template.is_valid():
        raise PromptError(f"{path} has a $ that begins no placeholder; write $$ for a dollar sign. There are {there}")
    named = template.get_identifiers()
    if wrong := [name for name in named if name not in PLACES]:
        raise PromptError(f"{path} has the placeholder ${wrong[0]}; there are {there}")
    if path.name.endswith(USER) and "problem" not in named:
        raise PromptError(
            f"{path} lacks the placeholder $problem, so every episode would be told the same; there are {there}"
        )
    return text


def _line(tool: Mapping[str, Any]) -> str:
    function = tool["function"]
    return f"{function['name']}({', '.join(function['parameters']['properties'])}): {function['description']}"


SHIPPED = Prompts({path.name: _template(path) for path in sorted(FOLDER.glob("*.txt"))})
