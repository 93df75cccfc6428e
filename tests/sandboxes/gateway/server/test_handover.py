"""How workers talk to each other, without workers."""

import httpx
import pytest

from sandboxes.gateway.server import handover
from sandboxes.gateway.server.listen import config


async def test_a_connection_to_another_worker_is_given_up_before_that_one_closes_it(tmp_path, monkeypatch):
    made = {}
    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **options: made.update(options))
    await handover._client(tmp_path / "w.sock").aclose()
    assert made["limits"].keepalive_expiry < config(lambda *_: None).timeout_keep_alive


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"api_key": 1}', b'{"api_key": "\\ud800aaaaaaaa"}', b"[" * 100_000])
def test_a_body_whose_handler_will_refuse_it_names_no_session(body):
    assert handover._field(body, "api_key") is None
