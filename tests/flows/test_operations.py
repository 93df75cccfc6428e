"""What Prefect does by itself on the real stack: runs by events, zombies, limits with leases, switches that stay on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tasks.stack import automations, limits
from tasks.stack import deployments as registering
from tasks.stack.settings import ROOT

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(600)]

HOLD = """
import asyncio, sys
from prefect import flow
from tasks.limits import place, places
from tasks.progress import Page
from tasks.stack.limits import BOXES, DEPLOYING, GRADING

@flow
async def hold():
    async with places(BOXES, 1000) as boxes, places(GRADING, 3) as grading:
        print(boxes, grading, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

@flow
def deploy():
    with place(DEPLOYING):
        print("deploying", flush=True)
        sys.stdin.readline()

@flow
async def show():
    page = await Page.begin("a-page", "it begins", "What changes")
    await page.show("it waits")
    print("shown", flush=True)

{"hold": lambda: asyncio.run(hold()), "deploy": deploy, "show": lambda: asyncio.run(show())}[sys.argv[1]]()
"""

TELL = """
import json, sys
from prefect import flow
from tasks.events import tell

def all_of(events):
    for event, resource, payload, labels in events:
        tell(event, resource, payload, **labels)

@flow
def part(events):
    all_of(events)

@flow
def whole(within, own):
    part(within)
    all_of(own)

whole(*json.loads(sys.argv[1]))
"""
STARTED = {"learn": {}, "gate": {"candidate": 7}, "reconcile": {}}  # by events, with these parameters


def until(holds, what, deadline_s=60):
    deadline = time.monotonic() + deadline_s
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.3)
    return found


@pytest.fixture
def holder(stack):
    """Starts a flow run that holds places; its first line says how many. Killed at the end."""
    started = []

    def start(what):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, what],
            cwd=ROOT, env=os.environ | {"PREFECT_LOGGING_LEVEL": "ERROR"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        started.append(process)
        return process, process.stdout.readline().split()

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def taken(deployments):
    return lambda name: deployments.ask("GET", f"v2/concurrency_limits/{name}")["active_slots"]


def expire(stack):
    """A minute passes for the leases: they are files of the server's."""
    folder = stack.home.root / "prefect" / "concurrency_leases"
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    for file in folder.glob("*.json"):
        told = json.loads(file.read_text())
        changed = dict.fromkeys(told, past) if file.name == "expirations.json" else told | {"expiration": past}
        file.write_text(json.dumps(changed))


def test_a_holder_takes_what_is_free_and_gives_it_back_at_its_end(holder, taken):
    process, (boxes, grading) = holder("hold")
    assert (int(boxes), int(grading)) == (limits.sizes()[limits.BOXES], 3)
    assert taken(limits.BOXES) == int(boxes)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(60) == 0
    assert (taken(limits.BOXES), taken(limits.GRADING)) == (0, 0)


def test_the_places_of_a_killed_holder_come_back(stack, holder, taken):
    process, _ = holder("deploy")
    assert taken(limits.DEPLOYING) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert taken(limits.DEPLOYING) == 1  # until the lease is over: nobody was there to give it back
    expire(stack)
    until(lambda: taken(limits.DEPLOYING) == 0, "the place did not come back", 30)
    again, said = holder("deploy")
    assert said == ["deploying"]
    assert again.poll() is None


def test_a_page_is_written_anew_in_its_place(holder, deployments):
    process, said = holder("show")
    assert (said, process.wait(60)) == (["shown"], 0)
    shown = [one["data"] for one in deployments.artifacts() if one["key"] == "a-page"]
    assert shown == ["it waits"]


def test_a_limit_that_the_operator_changed_stays_as_it_is(stack, deployments):
    path = f"v2/concurrency_limits/{limits.GRADING}"
    before = deployments.ask("GET", path)["limit"]
    deployments.ask("PATCH", path, {"limit": 5})
    limits.create(stack.prefect_url)
    assert deployments.ask("GET", path)["limit"] == 5
    deployments.ask("PATCH", path, {"limit": before})


def told(deployments, event, resource, payload=None, **labels):
    """Tell the server of an event."""
    about = {"prefect.resource.id": resource, **{name.replace("_", "."): value for name, value in labels.items()}}
    one = {"event": event, "resource": about, "payload": payload or {}, "id": os.urandom(16).hex()}
    deployments.ask("POST", "events", [one | {"occurred": datetime.now(UTC).isoformat()}])


def test_a_run_whose_process_died_is_ended(deployments):
    """What a killed worker leaves: a run that is running, whose heartbeats have stopped. Here ten seconds are enough."""
    installed = {one["name"] for one in deployments.every_automation() if one["enabled"]}
    assert {automations.ZOMBIES, automations.STUCK} <= installed
    sooner = automations.zombies(10) | {"name": "sooner"}
    sooner = deployments.ask("POST", "automations/", sooner)
    flow = deployments.ask("POST", "flows/", {"name": "zombie"})
    running = {"flow_id": flow["id"], "state": {"type": "RUNNING", "name": "Running"}}
    dead, alive = (deployments.ask("POST", "flow_runs/", running)["id"] for _ in range(2))
    try:
        time.sleep(2)  # the server hears of a new automation a moment later
        told(deployments, "prefect.flow-run.heartbeat", f"prefect.flow-run.{dead}")
        deadline = time.monotonic() + 90
        while (state := deployments.ask("GET", f"flow_runs/{dead}")["state"])["type"] == "RUNNING":
            told(deployments, "prefect.flow-run.heartbeat", f"prefect.flow-run.{alive}")
            assert time.monotonic() < deadline, "nobody ended it"
            time.sleep(2)
        assert (state["type"], state["message"]) == (
            "CRASHED",
            "its process is gone: nothing was heard of it for 10 s",
        )
        assert deployments.ask("GET", f"flow_runs/{alive}")["state"]["type"] == "RUNNING"
    finally:
        deployments.ask("DELETE", f"automations/{sooner['id']}")
        deployments.ask("POST", f"flow_runs/{alive}/set_state", {"state": {"type": "CANCELLED"}, "force": True})


def test_what_has_landed_is_labelled_once_its_trigger_is_on_and_an_upgrade_leaves_it_on(stack, deployments):
    name = "lakeloop: label what has landed"

    def trigger():
        return next(one for one in deployments.every_automation() if one["name"] == name)

    assert not trigger()["enabled"]
    deployments.ask("PATCH", f"automations/{trigger()['id']}", {"enabled": True})
    registering.keep_switches(stack.prefect_url)
    # what registering anew does
    deployments.ask("PATCH", f"automations/{trigger()['id']}", {"enabled": False})
    registering.restore_switches(stack.prefect_url)
    assert trigger()["enabled"]

    def land(run, within):
        about = {"lakeloop_within": within}
        told(deployments, "lakeloop.run.landed", f"lakeloop.run.{run}", {"run_id": run}, **about)

    try:
        time.sleep(2)  # the server hears of a changed automation a moment later
        land("part-of-a-loop", "flow")
        land("by-itself", "none")
        asked = {"run_ids": ["by-itself"]}
        (run,) = until(
            lambda: [one for one in deployments.runs("label") if one["parameters"] == asked], "no label run was started"
        )
        deployments.complete(run["id"])
        others = [one["parameters"] for one in deployments.runs("label")]
        assert {"run_ids": ["part-of-a-loop"]} not in others
    finally:
        deployments.ask("PATCH", f"automations/{trigger()['id']}", {"enabled": False})


def test_every_event_starts_its_deployment_with_what_it_tells(deployments, told_by_a_run):
    """Told as tasks tell it, by the events' own code: what is another alias, is examined or is a part of a run starts nothing."""
    names = ("learn once enough waits", "examine what is registered", "deploy what is promoted")
    triggers = [one for one in deployments.every_automation() if one["name"] in {f"lakeloop: {name}" for name in names}]
    assert [one["enabled"] for one in triggers] == [False] * 3
    before = {name: {run["id"] for run in deployments.runs(name)} for name in STARTED}

    def new(name):
        return [run for run in deployments.runs(name) if run["id"] not in before[name]]

    try:
        for one in triggers:
            deployments.ask("PATCH", f"automations/{one['id']}", {"enabled": True})
        time.sleep(2)  # the server hears of a changed automation a moment later
        told_by_a_run(
            part=[
                ["version.registered", "version.tiny.6", {"version": 6}, {"examined": "no"}],
                ["alias.moved", "alias.tiny.champion", {"version": 6}, {"alias": "champion"}],
            ],
            whole=[
                ["version.registered", "version.tiny.8", {"version": 8}, {"examined": "yes"}],
                ["alias.moved", "alias.tiny.challenger", {"version": 8}, {"alias": "challenger"}],
                ["groups.waiting", "model.tiny", {"groups": 16, "run_ids": ["r"]}, {}],
                ["version.registered", "version.tiny.7", {"version": 7}, {"examined": "no"}],
                ["alias.moved", "alias.tiny.champion", {"version": 7}, {"alias": "champion"}],
            ],
        )
        for name, asked in STARTED.items():
            until(lambda name=name: new(name), f"no run of {name} was started")
            (run,) = new(name)
            own = {key: run["parameters"].get(key) for key in asked}
            assert (own, run["created_by"]["type"]) == (asked, "AUTOMATION")
    finally:
        for one in triggers:
            deployments.ask("PATCH", f"automations/{one['id']}", {"enabled": False})
        for run in [run for name in STARTED for run in new(name)]:
            deployments.ask("POST", f"flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLED"}, "force": True})
    time.sleep(2)
    assert {name: len(new(name)) for name in STARTED} == dict.fromkeys(STARTED, 1)


@pytest.fixture
def told_by_a_run(stack):
    """Runs a flow that tells of events, and a flow within it that tells of others."""

    def tell(*, part, whole):
        done = subprocess.run(
            [sys.executable, "-c", TELL, json.dumps([part, whole])], cwd=ROOT, capture_output=True, text=True, timeout=120,
            check=False, env=os.environ | {"PREFECT_LOGGING_LEVEL": "ERROR"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return tell


@pytest.fixture
def inbox():
    """Somebody's webhook: its URL, and what was sent there."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_failure_is_told_to_the_block_that_is_named(stack, deployments, inbox):
    url, got = inbox
    with pytest.raises(automations.NoSuchBlock, match="LAKELOOP_NOTIFY is 'custom-webhook/nobody'"):
        automations.create(stack.prefect_url, "custom-webhook/nobody")
    kind = deployments.ask("GET", "block_types/slug/custom-webhook")
    asked = {"block_schemas": {"block_type_id": {"any_": [kind["id"]]}}}
    schema = deployments.ask("POST", "block_schemas/filter", asked)[0]
    block = {"name": "team", "block_type_id": kind["id"], "block_schema_id": schema["id"]}
    block["data"] = {"name": "team", "url": url, "json_data": {"text": "{{subject}}: {{body}}"}}
    deployments.ask("POST", "block_documents/", block)
    for _ in range(2):
        automations.create(stack.prefect_url, "custom-webhook/team")
    name = f"{automations.FAILURES} (custom-webhook/team)"
    (installed,) = [one for one in deployments.every_automation() if one["name"] == name]
    try:
        time.sleep(2)  # the server hears of a new automation a moment later
        run_id = deployments.start("erase", erasure_id="er-nobody")
        assert deployments.ended(run_id)["type"] == "FAILED"
        until(lambda: [one for one in got if run_id in one], "nothing was sent")  # of this run; others may fail too
        (letter,) = [one for one in got if run_id in one]
        assert "erase" in letter and "er-nobody" in letter
    finally:
        deployments.ask("DELETE", f"automations/{installed['id']}")
