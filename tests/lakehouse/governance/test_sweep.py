"""What the scan finds outside the lake goes: copies are removed, logs and databases go on without the words."""

import json
import sqlite3

import pytest

from lakehouse.governance import scan, sweep
from lakehouse.governance.probes import Probes

TEXT = "the blue heron of Wexley crossing"
ID = "ep-0123456789abcdef01234567"
SEARCH = scan.Search(Probes(names=[ID, "customer-1"], texts=[TEXT]))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    return tmp_path


def look(root):
    scanned = scan.Scanned()
    scan.folder(root, SEARCH, scanned)
    return scanned


def test_copies_are_removed_logs_are_blanked_and_what_is_unknown_is_left(root):
    for name in ("runs/grpo-1/rows.json", "mlflow/artifacts/1/a.txt", "prefect/storage/x", "notes.txt", "logs/a.log"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"one {TEXT} two {ID} three customer-1, and customer-10")
    with (root / "logs/a.log").open("a") as server:  # goes on writing
        done = sweep.sweep(look(root), SEARCH)
        server.write("\nnext line")
    assert sorted(done.removed) == ["mlflow/artifacts/1/a.txt", "prefect/storage/x", "runs/grpo-1/rows.json"]
    assert done.blanked == ["logs/a.log"]
    assert (root / "logs/a.log").read_text().endswith(", and customer-10\nnext line")
    assert list(look(root).found) == [str(root / "notes.txt")]


def test_weights_are_never_removed(root):
    (root / "runs").mkdir()
    (root / "runs/model.safetensors").write_text(TEXT)
    assert not sweep.sweep(look(root), SEARCH)


def test_a_database_that_is_in_use_loses_the_words_also_from_its_free_pages(root):
    (root / "prefect").mkdir()
    server = sqlite3.connect(root / "prefect/p.db", isolation_level=None)
    server.executescript(
        "pragma journal_mode = wal; create table log (id integer primary key, message text, blob blob);"
    )
    for number in range(200):
        server.execute("insert into log (message, blob) values (?, ?)", (f"{number} {TEXT} {'x' * 300}", ID.encode()))
    server.execute("delete from log where id > 5")  # leaves free pages that hold them
    server.execute("insert into log (message) values (?)", (json.dumps({"who": "customer-1", "and": "customer-10"}),))
    assert look(root).found
    sweep.sweep(look(root), SEARCH)
    assert look(root).found == {}
    messages = [row[0] for row in server.execute("select message from log order by id")]
    assert len(messages) == 6
    assert json.loads(messages[-1]) == {"who": "*" * 10, "and": "customer-10"}
    server.close()
