"""Logs as JSON lines: one object per call and per session event. Never a key, never what was said."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson


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
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(stream: TextIO | None = None, **facts: Any) -> None:
    """Send this process's logs to `stream`, by default stderr. `facts` go into every line, such as a worker's number."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    if facts:
        handler.addFilter(lambda record: _add(record, facts))
    # No line names the place it was written at, or its thread: finding them out costs more than the rest of a line.
    logging._srcfile = None  # the switch that logging's own documentation names
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("sandboxes.gateway").setLevel(logging.INFO)


def _add(record: logging.LogRecord, facts: dict[str, Any]) -> bool:
    record.facts = {**facts, **getattr(record, "facts", {})}
    return True
