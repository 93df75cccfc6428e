"""Work trees by content: once each, the same everywhere, whole or not at all."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxes.backends.base import BoxSpec
from sandboxes.backends.trees import Tree, TreeDamaged, TreeMissing, TreeStore

TREE = {"a.py": b"x = 1\n", "pkg/b.py": b"x = 1\n", "ünï\u2028": b"\xff\x00", "empty": b""}


@pytest.fixture
def store(tmp_path):
    return TreeStore(tmp_path / "trees")


def files(store):
    return [path for path in (store._folder / "files").rglob("*") if path.is_file()]


def test_what_is_put_is_what_is_got(store):
    digest = store.put(Tree(TREE, executable=frozenset({"a.py"})))
    got = store.get(digest)
    assert got == TREE
    assert got.executable == {"a.py"}
    assert digest in store


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.binary(max_size=20), max_size=5), st.randoms())
def test_the_digest_depends_on_content_alone(tmp_path_factory, tree, random):
    one, other = (TreeStore(tmp_path_factory.mktemp("trees")) for _ in range(2))
    shuffled = list(tree.items())
    random.shuffle(shuffled)
    assert one.put(tree) == other.put(dict(shuffled))
    assert other.get(one.put(tree)) == tree


def test_any_difference_is_another_tree(store):
    trees = [
        TREE,
        {**TREE, "a.py": b"x = 2\n"},
        {**TREE, "c.py": b""},
        {path: content for path, content in TREE.items() if path != "empty"},
        {**{path: content for path, content in TREE.items() if path != "a.py"}, "z.py": TREE["a.py"]},
        Tree(TREE, executable=frozenset({"a.py"})),
        {},
    ]
    assert len({store.put(tree) for tree in trees}) == len(trees)


def test_equal_files_are_kept_once_whatever_tree_they_are_in(store):
    store.put(TREE)
    assert len(files(store)) == 3  # two of four are equal
    store.put({**TREE, "new.py": b"x = 1\n"})
    assert len(files(store)) == 3


def test_many_may_put_the_same_at_once(store):
    trees = [{**TREE, "n": b"%d" % (number % 4)} for number in range(32)]
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(store.put, trees))
    assert len(set(digests)) == 4
    assert [store.get(digest)["n"] for digest in digests] == [tree["n"] for tree in trees]
    assert list(store._folder.glob("*/.part-*")) == []


def test_a_tree_that_is_not_there_and_a_name_that_is_none_are_clear_errors(store):
    with pytest.raises(TreeMissing, match="it was pruned or never put"):
        store.get("0" * 64)
    for name in ("../../etc/passwd", "", "ABC"):
        with pytest.raises(TreeMissing, match="not a SHA-256"):
            store.get(name)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-6], lambda raw: b"", lambda raw: raw[:8] + b"\x00" + raw[9:]])
def test_a_file_that_is_not_what_its_name_says_is_never_given_out(store, damage):
    digest = store.put(TREE)
    for path in files(store):
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TreeDamaged):
        store.get(digest)


def test_pruning_keeps_what_is_wanted_and_what_is_recent_with_their_files(store):
    old, wanted, again = (store.put({"same": b"same", "own": name}) for name in (b"old", b"wanted", b"again"))
    past = time.time() - 1000
    for path in store._folder.rglob("*"):
        os.utime(path, (past, past))
    assert store.put({"same": b"same", "own": b"again"}) == again
    (store._folder / "files" / ".part-dead").write_bytes(b"half")
    gone = store.prune(keep={wanted}, unused_s=500)
    assert (gone.trees, gone.files) == (1, 1)
    assert old not in store
    assert store.get(wanted)["own"] == b"wanted"
    assert store.get(again)["same"] == b"same"
    assert not (store._folder / "files" / ".part-dead").exists()


async def test_a_box_begins_where_another_one_was(backend, store):
    box = await backend.start(
        BoxSpec(files=Tree({"run.sh": b"#!/bin/sh\necho ran $(cat note)\n"}, executable=frozenset({"run.sh"})))
    )
    await box.exec(["sh", "-c", "echo one > note; touch tool; chmod +x tool"], timeout_s=20)
    step = store.put(await box.snapshot())
    await box.exec(["sh", "-c", "echo two > note; rm tool"], timeout_s=20)
    later = store.put(await box.snapshot())
    await box.close()
    for digest, note in ((step, b"one"), (later, b"two"), (step, b"one")):
        branch = await backend.start(BoxSpec(files=store.get(digest)))
        ran = await branch.exec(["./run.sh"], timeout_s=20)
        assert (ran.stdout, ran.exit_code) == (b"ran " + note + b"\n", 0)
        assert store.put(await branch.snapshot()) == digest
        await branch.close()
