"""Logs as JSON lines: one object per call and per session event. Never a key, never what was said."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO


class JsonLines(logging.Formatter):
    """One JSON object per record; `extra={"facts": {...}}` gives further fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            # Without the exception's text, which may quote what was said.
            line["error"] = record.exc_info[0].__name__
            line["traceback"] = "".join(traceback.format_tb(record.exc_info[2]))
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(stream: TextIO | None = None, **facts: Any) -> None:
    """Send this process's logs to `stream`, by default stderr. `facts` go into every line, such as a worker's number."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    if facts:
        handler.addFilter(lambda record: _add(record, facts))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("sandboxes.gateway").setLevel(logging.INFO)


def _add(record: logging.LogRecord, facts: dict[str, Any]) -> bool:
    record.facts = {**facts, **getattr(record, "facts", {})}
    return True
