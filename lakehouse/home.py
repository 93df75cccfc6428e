"""Where state lives: one home folder, `LAKELOOP_HOME`, by default `.lakeloop/` under the working directory."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """Paths under the home folder. Nothing is created until somebody writes."""

    root: Path

    @property
    def lake(self) -> str:
        """The lake's location: `LAKELOOP_LAKE` (a folder or an object-store URL), else `<home>/lake`."""
        return os.environ.get("LAKELOOP_LAKE") or str(self.root / "lake")

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pids(self) -> Path:
        return self.root / "pids"

    @property
    def keys(self) -> Path:
        """Secrets, one file each, mode 0600."""
        return self.root / "keys"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def runs(self) -> Path:
        """Working folders of training runs."""
        return self.root / "runs"

    @property
    def rubrics(self) -> Path:
        """Rubrics of one's own, beside the shipped ones: `LAKELOOP_RUBRICS`, else `<home>/rubrics`."""
        return Path(os.environ.get("LAKELOOP_RUBRICS") or self.root / "rubrics").resolve()

    @property
    def cache(self) -> Path:
        """What can be made again: images, corpora, package sources."""
        return self.root / "cache"

    @property
    def trees(self) -> Path:
        """Work trees of episodes, by content."""
        return self.root / "trees"

    @property
    def filters(self) -> Path:
        """A user's own filters, an SQL file each."""
        return self.root / "filters"

    @property
    def tokenizers(self) -> Path:
        """The tokenizer of each model by name, as far as one was landed: to find text in token ids."""
        return self.root / "tokenizers"

    @property
    def artifacts(self) -> Path:
        """Where the stack's own MLflow server keeps artifacts, the files of registered versions among them."""
        return self.root / "mlflow" / "artifacts"

    @property
    def gateway(self) -> Path:
        """The gateway's journal."""
        return self.root / "gateway"


def home() -> Home:
    """The home folder in force."""
    return Home(Path(os.environ.get("LAKELOOP_HOME", ".lakeloop")).resolve())
