"""The byte scan finds what is there, wherever it lies, and nothing else."""

import gzip
import json
import random
import sqlite3
import zipfile
import zlib

import numpy as np
import polars as pl
import pytest

from lakehouse.governance import scan
from lakehouse.governance.matcher import Matcher
from lakehouse.governance.probes import Probes

TEXT = "the blue heron of Wexley crossing"
TOKENS = list(range(900, 916))
ID = "ep-0123456789abcdef01234567"
PROBES = Probes(names=[ID, "customer-1"], texts=[TEXT], tokens=[TOKENS])


def found(root, probes=PROBES):
    scanned = scan.Scanned()
    scan.folder(root, scan.Search(probes), scanned)
    assert not scanned.unread
    return {what for told in scanned.found.values() for what in told}


def parquet(path, **columns):
    """Dictionary-encoded and compressed: nothing of it can be seen from outside."""
    pl.DataFrame(columns).write_parquet(path, compression="gzip", statistics=False)
    raw = path.read_bytes()
    assert TEXT.encode() not in raw and np.array(TOKENS, np.int32).tobytes() not in raw


PLANTS = {
    "plain": lambda root: (root / "a.log").write_text(f"x{TEXT}y"),
    "json": lambda root: (root / "a.json").write_text(json.dumps({"t": f'"{TEXT}"\n'})),
    "gzip": lambda root: (root / "a.gz").write_bytes(gzip.compress(TEXT.encode())),
    "zlib": lambda root: (root / "a").write_bytes(zlib.compress(TEXT.encode(), 1)),
    "zip": lambda root: zipfile.ZipFile(root / "a.zip", "w", zipfile.ZIP_DEFLATED).writestr("m", TEXT),
    "parquet": lambda root: parquet(root / "a.parquet", t=["noise " * 9 + TEXT] * 50),
    "sqlite": lambda root: sqlite3.connect(root / "a.db", isolation_level=None).executescript(
        f"create table t (c); insert into t values ('{TEXT}');"
    ),
}


@pytest.mark.parametrize("way", PLANTS)
def test_text_is_found_as_it_lies_there(tmp_path, way):
    assert found(tmp_path) == set()
    PLANTS[way](tmp_path)
    assert found(tmp_path) == {"text"}


@pytest.mark.parametrize("number", [np.int32, np.int64])
def test_tokens_are_found_in_parquet_lists_and_arrays_of_either_width(tmp_path, number):
    column = pl.Series([[1, 2, *TOKENS, 3]] * 50, dtype=pl.List(pl.Int32 if number is np.int32 else pl.Int64))
    parquet(tmp_path / "a.parquet", ids=column)
    assert found(tmp_path) == {"tokens"}
    (tmp_path / "a.parquet").unlink()
    np.save(tmp_path / "a.npy", np.array([1, *TOKENS], number))
    assert found(tmp_path) == {"tokens"}


@pytest.mark.parametrize("between", [",", ", "])
def test_tokens_are_found_in_json(tmp_path, between):
    (tmp_path / "probe.json").write_text(f"[1{between}{between.join(map(str, TOKENS))}]")
    assert found(tmp_path) == {"tokens"}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (f"see {ID}.", {"id"}),
        ("of customer-1, today", {"name"}),
        ('{"t":"hello\\ncustomer-1"}', {"name"}),
        ("of customer-10 and my-customer-1", set()),
        (ID[:-1], set()),
    ],
)
def test_names_are_whole_words(tmp_path, written, told):
    (tmp_path / "a.txt").write_text(written)
    assert found(tmp_path) == told


NAMES = ["Jürgen-17", 'o"neil 17', "back\\slash", "a/b<c>&'d", "🦊-17", "two\nlines"]


def nested(text, **how):
    """A text in a JSON document, that in another, and that in a third."""
    told = [json.dumps({"who": text}, **how)]
    told.append(json.dumps({"said": told[0]}, **how))
    return [*told, json.dumps([told[1]], **how)]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_found_as_text_and_json_have_them_and_are_blanked_there(name):
    search = scan.Search(Probes(names=[name]))
    written = [name, f"„{name}“", *nested(name), *nested(name, ensure_ascii=False), *nested(f"„{name}“")]
    written += [json.dumps(name).replace("/", "\\/"), json.dumps(name).replace("<", "\\u003C").replace("'", "\\u0027")]
    for text in written:
        assert search(f"x {text} y".encode()) == {"name"}, text
        clean = search.blanked(text.encode())
        assert len(clean) == len(text.encode()) and not search(clean)
        told = scan.replaced(text, name, "su-1")
        assert "su-1" in told and not search(told.encode())
    for other in (f"{name}0", f"x{name}", name[:-1], name[1:]):
        assert all(search(text.encode()) == set() for text in (other, *nested(other))), other


def test_escaped_names_across_the_pieces_a_file_is_read_in_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "CHUNK", 16)
    for at in range(16):
        (tmp_path / "a.json").write_text("." * at + nested("„Jürgen-17“")[2])
        assert found(tmp_path, Probes(names=["Jürgen-17"])) == {"name"}


def test_text_beyond_ascii_is_found_in_json_within_json(tmp_path):
    text = "der Reiher von Köln schläft um zwölf Uhr"
    (tmp_path / "a.json").write_text(nested(text)[1])
    assert found(tmp_path, Probes(texts=[text])) == {"text"}


def test_a_name_at_the_edge_of_a_value_is_found_in_parquet(tmp_path):
    parquet(tmp_path / "a.parquet", who=["abc", "customer-1", "abd"] * 20)
    assert "name" in found(tmp_path)


def test_what_lies_across_the_pieces_a_file_is_read_in_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "CHUNK", 64)
    (tmp_path / "a.txt").write_text("." * 50 + TEXT + "." * 50 + "customer-1")
    assert found(tmp_path) == {"text", "name"}


def test_a_file_that_cannot_be_unpacked_is_told(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    scanned = scan.Scanned()
    scan.folder(tmp_path, scan.Search(PROBES), scanned)
    assert len(scanned.unread) == 1


@pytest.mark.parametrize("way", ["gzip", "zlib", "zip"])
def test_an_archive_that_is_not_searched_to_its_end_is_told(tmp_path, monkeypatch, way):
    hidden = b"\0" * 3000 + b" customer-1 "
    if way == "zip":
        with zipfile.ZipFile(tmp_path / "a", "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(4):  # what counts is all of them
                archive.writestr(f"m{number}", hidden[1000 * number :][:1000])
    else:
        (tmp_path / "a").write_bytes({"gzip": gzip, "zlib": zlib}[way].compress(hidden))
    monkeypatch.setattr(scan, "CHUNK", 256)
    assert found(tmp_path) == {"name"}
    monkeypatch.setattr(scan, "LARGEST_UNPACKED", 2000)
    scanned = scan.Scanned()
    scan.folder(tmp_path, scan.Search(PROBES), scanned)
    assert not scanned.found
    assert [told for told in scanned.unread if "unpacks to more than 2,000 bytes" in told]


def test_the_matcher_finds_what_a_plain_search_finds():
    chance = random.Random(0)
    data = bytes(chance.randrange(4) for _ in range(4000))
    patterns = {data[at : at + n] for at, n in ((0, 8), (3992, 8), (100, 30), (2000, 9))}
    patterns |= {bytes(chance.randrange(4) for _ in range(9)) for _ in range(300)}
    assert Matcher(patterns)(data) == {one for one in patterns if one in data} >= {data[0:8], data[3992:]}
