"""A line of versions with everything that made them."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from lakehouse.label import label
from lakehouse.selection.select import Selected, Selection, select
from lakehouse.write import Writer

GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1)


@dataclass
class Line:
    """Versions toy@1 (from elsewhere), toy@2 and toy@3, each trained from the one before on a run of its own."""

    lake: str
    make: Any
    judges: list[str] = field(default_factory=lambda: ["search@2"])

    def train(self, version: int, batch: Any, **changes: Any) -> Selected:
        """Land and label `batch`, select its run, register toy@version as trained on it."""
        batch.land(self.lake)
        for rubric in self.judges:
            label(self.lake, rubric)
        run = batch.episodes[0].run_id
        made = select(self.lake, GRPO.model_copy(update={"run_ids": [run], "policy_version": version - 1, **changes}))
        self.register(version, made.training_set_id)
        return made

    def register(self, version: int, training_set_id: str | None, **changes: Any) -> None:
        held = self.make.version(version, version - 1 or None)
        values = {"training_set_id": training_set_id, "commit": f"commit{version}", **changes}
        Writer(self.lake).append("model_versions", [held.model_copy(update=values)])


@pytest.fixture
def line(lake, make) -> Line:
    line = Line(lake, make)
    Writer(lake).append("problems", [make.problem(), make.problem("q", source="elsewhere", licence="MIT")])
    line.register(1, None)
    return line
