"""A folder of one's own for rubrics, beside the shipped ones."""

from pathlib import Path

import pytest

HEADER = """-- name: {name}
-- version: {version}
-- kinds: search
-- grain: one row per search episode
-- inputs: episodes
"""
SELECT = """select
    episode_id,
    'scored' as status,
    {outcome} as outcome,
    {reward} as reward,
    '{{}}' as components
from episodes
where problem_kind = 'search'
"""


class Own:
    """Writes rubrics of one's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def write(self, title: str, sql: str, *, header: str = "") -> Path:
        name, _, version = title.partition("@")
        path = self.folder / f"{title}.sql"
        path.write_text(HEADER.format(name=name, version=version) + header + sql)
        return path

    def paying(self, title: str, reward: str, *, outcome: str = "1", header: str = "") -> Path:
        """A rubric that gives each search episode this, as SQL."""
        return self.write(title, SELECT.format(outcome=outcome, reward=reward), header=header)


@pytest.fixture
def own(tmp_path, monkeypatch) -> Own:
    monkeypatch.setenv("LAKELOOP_RUBRICS", str(tmp_path / "own"))
    return Own(tmp_path / "own")
