"""The shipped tokenizer, conversations in its tokens, and things that must not be kept."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from lakehouse.privacy import pieces
from lakehouse.records import Source, now
from lakehouse.write import Writer

FOLDER = Path(__file__).parents[3] / "tasks" / "training" / "tiny" / "weights"


@pytest.fixture
def tokenizer(tmp_path, monkeypatch):
    """Of the model "toy", kept in a home of the test's own."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    pieces.keep("toy", FOLDER)
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@pytest.fixture
def declare(lake):
    def declare(source="*", privacy="mask"):
        row = Source(
            source=source,
            licence="CC0-1.0",
            allowed_uses=["training"],
            consent="given",
            privacy=privacy,
            retention_days=None,
            declared_by="test",
            declared_at=now(),
        )
        Writer(lake).append("sources", [row])

    return declare
