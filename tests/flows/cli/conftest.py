"""The command line inside this process: what it prints, and the status it ends with."""

import os
import sys
from dataclasses import dataclass
from unittest import mock

import pytest

from flows.cli import app


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def said(self):
        """Both streams without line breaks: how wide a terminal is says nothing."""
        return " ".join(f"{self.out} {self.err}".split())


@pytest.fixture
def lakeloop(monkeypatch, capsys, tmp_path, free_ports):
    """Runs `lakeloop ARGUMENTS` with an empty home folder and no stack; an exception that it lets out fails the test."""
    ports = dict(zip(("PREFECT", "MLFLOW", "ENGINE", "GATEWAY"), map(str, free_ports(4)), strict=True))
    with mock.patch.dict(os.environ):  # the command line points this process at its stack
        for name in [name for name in os.environ if name.startswith("LAKELOOP_")]:
            del os.environ[name]
        os.environ.update({f"LAKELOOP_{name}_PORT": port for name, port in ports.items()})
        os.environ["LAKELOOP_HOME"] = str(tmp_path)

        def call(*arguments):
            monkeypatch.setattr(sys, "argv", ["lakeloop", *arguments])
            try:
                app.run()
                status = 0
            except SystemExit as end:
                status = end.code or 0
            out, err = capsys.readouterr()
            return Ended(status, out, err)

        yield call
