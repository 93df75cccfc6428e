"""What a model is asked about an episode: a template of one's own or the shipped one, filled with what the lake holds."""

import json
from dataclasses import dataclass
from pathlib import Path
from string import Template

from lakehouse.records import digest
from lakehouse.trajectory import Trajectory, Turn
from tasks.judges.base import JUDGES, JudgeMisconfigured

SHIPPED = Path(__file__).parent / "prompts"
PLACES = ("problem", "transcript", "answer", "evidence", "mark")
MAX_CHARS = 12_000  # of one value


@dataclass(frozen=True)
class Prompt:
    """A template with $problem, $transcript, $answer, $evidence and $mark.

    What an agent or its tools wrote comes between marks that it cannot know, so that it cannot pass for the question.
    `max_chars` bounds each value; a longer one loses its middle, and says how much of it.
    """

    template: str
    max_chars: int = MAX_CHARS

    @classmethod
    def read(cls, name: str, *, max_chars: int = MAX_CHARS) -> "Prompt":
        """A shipped template by its name ("solved"), or a file by its path. JudgeMisconfigured where it cannot be used."""
        shipped = SHIPPED / f"{name}.txt"
        path = shipped if shipped.parent == SHIPPED and shipped.exists() else Path(name)
        if not path.is_file():
            there = ", ".join(sorted(one.stem for one in SHIPPED.glob("*.txt")))
            raise JudgeMisconfigured(f"no prompt {name!r}: give a file's path, or a shipped one's name: {there}")
        return cls(path.read_text(), max_chars)

    def __post_init__(self) -> None:
        template = Template(self.template)
        if not template.is_valid():
            raise JudgeMisconfigured("the prompt has a $ that begins no name; write $$ for a dollar sign")
        named = set(template.get_identifiers())
        if wrong := sorted(named - set(PLACES)):
            raise JudgeMisconfigured(f"the prompt has ${wrong[0]}; there are {', '.join('$' + one for one in PLACES)}")
        if not named & {"transcript", "answer"}:
            raise JudgeMisconfigured(
                "the prompt has neither $transcript nor $answer, so it would ask the same of everybody"
            )

    @property
    def digest(self) -> str:
        return digest(self.template, str(self.max_chars))[:12]

    def fill(self, trajectory: Trajectory) -> str:
        """The prompt for one episode."""
        mark = digest("mark", trajectory.episode.episode_id, trajectory.episode.attempt_id)[:12]
        problem = trajectory.problem.prompt if trajectory.problem else "(not in the lake)"
        measured = [fact for fact in trajectory.evidence if not fact.producer.startswith(JUDGES)]
        evidence = {fact.name: json.loads(fact.value) for fact in measured}
        values = {
            "problem": problem,
            "transcript": "\n\n".join(map(_turn, trajectory.turns)),
            "answer": _said(trajectory.turns[-1]) if trajectory.turns else "",
            "evidence": json.dumps(evidence, ensure_ascii=False, sort_keys=True),
        }
        filled = {name: f"<{mark}>\n{self._bounded(text, mark)}\n</{mark}>" for name, text in values.items()}
        return Template(self.template).substitute(filled | {"mark": mark})

    def _bounded(self, text: str, mark: str) -> str:
        text = text.replace(mark, "")
        over = len(text) - self.max_chars
        if over <= 0:
            return text
        half = self.max_chars // 2
        return f"{text[:half]}\n[... {over:,} characters left out ...]\n{text[-half:]}"


def _turn(turn: Turn) -> str:
    lines = [f"ASSISTANT: {_said(turn)}"]
    for action in turn.actions:
        lines += [f"TOOL CALL {action.tool}: {action.arguments}", f"TOOL RESULT: {action.observation}"]
    return "\n".join(lines)


def _said(turn: Turn) -> str:
    message = json.loads(turn.call.response_message) or {}  # null: the call ended without an answer
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
