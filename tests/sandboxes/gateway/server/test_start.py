"""What a gateway cannot start with is told in one line, before it says where it is."""

import pytest
from pydantic import ValidationError

from sandboxes.gateway.server import serve
from sandboxes.gateway.server.serve import Place, run
from sandboxes.gateway.settings import Settings


@pytest.fixture
def settings(tmp_path):
    return Settings(engine="http://127.0.0.1:1", home=tmp_path / "home", model="m")


@pytest.fixture
def files(tmp_path):
    """A certificate and a key that are none, by what is wrong with them."""
    (tmp_path / "text").write_text("no PEM")
    return {"missing": (tmp_path / "nowhere", tmp_path / "text"), "no PEM": (tmp_path / "text", tmp_path / "text")}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("wrong", "named"), [("missing", "No such file or directory: '"), ("no PEM", "in PEM")])
def test_a_certificate_that_cannot_be_read(settings, files, monkeypatch, capsys, workers, wrong, named):
    monkeypatch.setattr(serve, "supervise", lambda *_: 0)
    cert, key = files[wrong]
    place = Place(settings=settings, port=0, workers=workers, tls_cert=cert, tls_key=key)
    announced = []
    assert (run(place, announced.append), announced) == (1, [])
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert named in said.err
    assert str(cert) in said.err


def test_boxes_get_no_keys_that_give_rewards(settings, tmp_path):
    rewarding = settings.model_copy(update={"model_key_rewards": True})
    Place(settings=rewarding)
    with pytest.raises(ValidationError, match="leave out --model-key-rewards"):
        Place(settings=rewarding, socket=tmp_path / "door" / "g.sock")
