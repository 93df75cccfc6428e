"""What every driver shares: where the gateway is, the tool, and how a driver tells the test what its client saw.

A driver is a program of a user of ours: it runs in the clients' environment, imports nothing of this project, and knows
OPENAI_BASE_URL (ends in /v1), OPENAI_API_KEY and MODEL.
"""

import json
import os
import sys
from typing import Any

BASE_URL = os.environ["OPENAI_BASE_URL"]
API_KEY = os.environ["OPENAI_API_KEY"]
MODEL = os.environ["MODEL"]
OPTIONS = set(sys.argv[1:])  # such as "stream"

SYSTEM = "You look things up."
QUESTION = "What is the capital of Atlantis?"  # the tiny model answers with one tool call after the other
FOLLOW_UP = "What is the capital of Lemuria?"
DESCRIPTION = "Look a thing up."
SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}
MAX_TOKENS = 48  # per answer
answers: list[dict[str, Any]] = []


def found(query: str) -> str:
    """What the tool gives."""
    return f"1. {query}: capital Poseidonis"


def saw(text: str | None, *calls: tuple[str, str | dict[str, Any]]) -> None:
    """Note one answer of the model as the client gave it: its text, and its tool calls as (name, arguments)."""
    parsed = [[name, json.loads(given) if isinstance(given, str) else given] for name, given in calls]
    answers.append({"text": text or "", "calls": parsed})


def tell(**more: Any) -> None:
    """The driver's last line of output."""
    print(json.dumps({"answers": answers, **more}))
