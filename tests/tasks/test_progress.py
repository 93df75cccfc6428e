import asyncio
from uuid import uuid4

import pytest
from prefect.artifacts import acreate_table_artifact, create_link_artifact
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from tasks.progress import Clock, Page, Progress, listener, listening
from tasks.showing import ashow, show


def test_a_clock_adds_up_under_each_name_and_counts_what_fails():
    clock = Clock()
    with clock("collect"):
        pass
    with pytest.raises(ValueError), clock("train"):
        raise ValueError
    clock.add({"collect": 2.0, "label": 1.5})
    assert clock.seconds.keys() == {"collect", "train", "label"}
    assert 2.0 <= clock.seconds["collect"] < 2.5
    assert clock.seconds["label"] == 1.5


def test_a_listener_hears_only_while_it_listens():
    assert listener.get() is None
    with pytest.raises(ValueError), listening(print):
        assert listener.get() is print
        raise ValueError
    assert listener.get() is None


async def test_work_goes_on_where_its_progress_cannot_be_shown(free_ports, caplog):
    (port,) = free_ports(1)
    nobody = {PREFECT_API_URL: f"http://127.0.0.1:{port}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    progress = Progress("collecting", 1, uuid4())
    heard = []
    with temporary_settings(nobody), listening(lambda *told: heard.append(told)):
        await progress.advance()
    assert heard == [("collecting", 1, 1)]
    assert "the progress of collecting could not be shown" in caplog.text


async def test_runs_go_on_where_what_they_show_finds_no_server(free_ports, caplog):
    (port,) = free_ports(1)
    nobody = {PREFECT_API_URL: f"http://127.0.0.1:{port}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nobody):
        await asyncio.to_thread(show, create_link_artifact, key="version", link="http://x", link_text="x")
        assert await ashow(acreate_table_artifact, key="rewards", table=[]) is None
        page = await Page.begin("waits", "nothing yet", "What the loop waits for")
        await page.show("episodes")
        progress = await Progress.begin("collecting", 1)
        await progress.advance()
    for what in ("version", "rewards", "waits", "collecting"):
        assert f"{what} could not be shown in Prefect" in caplog.text


async def test_what_is_shown_is_the_latest_count_however_slow_an_earlier_one_was(monkeypatch):
    shown, first = [], asyncio.Event()

    async def slow(_, progress):
        if not shown and not first.is_set():
            first.set()
            await asyncio.sleep(0.05)
        shown.append(progress)

    monkeypatch.setattr("tasks.progress.aupdate_progress_artifact", slow)
    monkeypatch.setattr("tasks.progress.UPDATE_S", -1)
    progress = Progress("collecting", 2, uuid4())
    half = asyncio.create_task(progress.advance())
    await first.wait()
    await progress.advance()
    await half
    assert shown[-1] == 100
