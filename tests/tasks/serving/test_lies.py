"""Each way in which an engine may not serve what it says, caused on the real engine, and caught."""

import shutil

import pytest
from openai import AsyncOpenAI, InternalServerError
from safetensors.numpy import load_file, save_file

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks.serving.deploy import deploy, probe
from tasks.serving.engine import UNKNOWN_VERSION, Engine
from tasks.serving.errors import ModelError, ProbeError, Unchanged
from tasks.serving.gate import Gate
from tasks.training.folder import PROBE
from tasks.training.probe_set import write

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(engine_url, tmp_path, monkeypatch):
    """The shared engine; afterwards it serves what it served."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    with Engine(engine_url) as engine:
        number = engine.served_version()
        yield engine
        if engine.served_version() != number:
            engine.reload(engine.folder(), number)
            engine.label(number)


@pytest.fixture
def gate(tmp_path):
    """No gateway is there: nothing to hold back."""
    with Gate("http://127.0.0.1:9", tmp_path / "operator") as gate:
        yield gate


@pytest.fixture(scope="module")
def trained(engine_url, tmp_path_factory):
    """A model folder as a trainer leaves it, probe set included."""
    place = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, Engine(engine_url) as engine:
        patch.setenv("LAKELOOP_HOME", str(place))
        folder = place / "trained"
        shutil.copytree(engine.folder(), folder)
        for file in folder.glob("*.safetensors"):
            save_file({name: array * 1.01 for name, array in load_file(file).items()}, file, {"format": "pt"})
        write(folder / PROBE, probe(folder, engine.context()))
    return folder


class Forgetful(Engine):
    """An engine of which one control route answers well and does nothing."""

    def __init__(self, url, route):
        super().__init__(url)
        self.route = route

    def _call(self, method, path, **how):
        if path == "/pause" and self.route == "/reset_prefix_cache":  # a pause clears the caches as well
            how["params"] |= {"clear_cache": "false"}
        return {"success": True} if path == self.route else super()._call(method, path, **how)


def test_weights_that_are_served_are_proven_over_the_whole_context_and_at_another_temperature(engine, gate, trained):
    number = engine.served_version()
    proof = deploy(engine, trained, number + 1, gate, parent=engine.folder())
    assert proof.passed, proof.reason
    assert engine.served_version() == number + 1
    assert (proof.sequences, proof.longest, proof.heated_tokens) == (3, engine.context() - 1, 12)
    assert proof.mean_difference < 1e-4 < proof.mean_movement and proof.max_difference < 1e-3
    assert 0 < proof.swap_s < proof.held_s
    assert len(proof.tokenizer) == 64


@pytest.mark.parametrize(
    ("route", "said"),
    [("/collective_rpc", "differ from the trainer's"), ("/reset_prefix_cache", "at temperature 0.7 only")],
    ids=["a swap that did not happen", "a prefix cache of the old weights that stayed"],
)
def test_what_the_engine_says_it_did_and_did_not(route, said, engine, gate, trained):
    proof = deploy(Forgetful(engine.url, route), trained, 7, gate)
    assert not proof.passed
    assert said in proof.reason
    assert engine.served_version() == UNKNOWN_VERSION


def test_a_merge_that_bound_nothing_is_told_as_such_and_nothing_is_touched(engine, gate, tmp_path):
    number, parent, merged = engine.served_version(), engine.folder(), tmp_path / "merged"
    shutil.copytree(parent, merged)
    held = {name: array for file in merged.glob("*.safetensors") for name, array in load_file(file).items()}
    for file in merged.glob("*.safetensors"):
        file.unlink()
    (merged / "model.safetensors.index.json").unlink(missing_ok=True)
    save_file(dict(reversed(held.items())), merged / "model.safetensors", {"format": "pt", "merged": "yes"})
    with pytest.raises(
        Unchanged, match=r"are those of the version it was trained from .*an adapter that bound no module"
    ):
        deploy(engine, merged, number + 1, gate, parent=parent)
    assert engine.served_version() == number


def test_another_tokenizer(engine, gate, trained, with_other_tokenizer, tmp_path):
    number, other = engine.served_version(), with_other_tokenizer(trained, tmp_path / "other")
    with pytest.raises(ModelError, match=r"tokenizer or chat template of .* is not the one that the engine at"):
        deploy(engine, other, number + 1, gate)
    (other / "tokenizer.json").write_bytes((trained / "tokenizer.json").read_bytes())
    for file in [one for one in (other / "chat_template.jinja", other / "tokenizer_config.json") if one.exists()]:
        file.write_text(file.read_text().replace("assistant", "helper"))
    with pytest.raises(ModelError, match="tokenizer or chat template"):
        deploy(engine, other, number + 1, gate)
    assert engine.served_version() == number


def test_files_that_are_gone_and_a_probe_set_that_is_empty_leave_the_old_version_serving(
    engine, gate, trained, tmp_path
):
    number, broken = engine.served_version(), tmp_path / "broken"
    shutil.copytree(trained, broken)
    (broken / PROBE).write_text("[]")
    with pytest.raises(ProbeError, match="holds no sequence to score"):
        deploy(engine, broken, number + 1, gate)
    shutil.rmtree(broken)
    with pytest.raises(ModelError, match="broken"):
        deploy(engine, broken, number + 1, gate)
    assert engine.served_version() == number


async def test_a_replica_that_fell_back_to_what_it_started_with_takes_no_call_until_it_is_proven(engine, tmp_path):
    number, model = engine.served_version(), engine.models()[0]
    gateway = Gateway(Settings(engine=engine.url, home=tmp_path, model=model))
    async with (
        serving(gateway.app()) as url,
        GatewayClient(url, gateway.operator_key) as client,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as sdk,
    ):
        session = await client.start_session("t")
        asking = sdk.with_options(api_key=session.api_key).chat.completions
        wanted = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        await asking.create(**wanted)
        [member] = gateway.engines.members
        engine._call("POST", "/update_weight_version", json={"new_version": "default"})  # as a new process has it
        await member.look()
        engine.label(number)  # somebody labels it again; a label alone is no proof
        with pytest.raises(InternalServerError, match="are not proven") as refused:
            await asking.create(**wanted)
        assert refused.value.code == "engine_stale"
        await gateway.engines.prove(engine.url, number)
        await asking.create(**wanted)
