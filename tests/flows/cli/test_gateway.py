"""`lakeloop gateway`: it teaches, it never shows a key, and it serves HTTPS where it is given a certificate."""

import asyncio
import datetime
import json
import signal
import ssl
import subprocess
import sys

import httpx
import pytest

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted, serve
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings


def test_help_says_what_it_is_for_and_how_to_try_it(lakeloop):
    said = lakeloop("gateway", "--help").said
    for word in ("base URL", "api_key", "reward key", "--allow-upstream", "--workers", "--tls-cert", "docs/gateway.md"):
        assert word in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engine", "http://10.1.2.3:8000"], "--allow-upstream 10.1.2.3"),
        (["--engine", "ftp://x"], "http"),
        (["--engine", "http://127.0.0.1:1", "--port", "99999"], "port"),
        (["--engine", "http://127.0.0.1:1", "--workers", "0"], "workers"),
        (["--engine", "http://127.0.0.1:1", "--tls-cert", "cert.pem"], "--tls-key"),
    ],
)
def test_what_cannot_be_is_one_message_that_says_so(lakeloop, free_ports, arguments, named):
    ended = lakeloop("gateway", "--model", "m", "--port", str(free_ports(1)[0]), *arguments)
    assert ended.status != 0
    assert named in ended.said
    assert "Traceback" not in ended.said


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 signed by itself, and its key."""
    x509 = pytest.importorskip("cryptography.x509")
    import ipaddress

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return cert, secret


async def test_it_prints_a_way_to_start_without_the_key_and_serves_https(tmp_path, certificate):
    cert, secret = certificate
    home = tmp_path / "home"
    async with serve(["x"]) as engine_url:
        command = ["gateway", "--engine", engine_url, "--model", "scripted", "--port", "0", "--home", str(home)]
        tls = ["--tls-cert", str(cert), "--tls-key", str(secret)]
        lakeloop = [sys.executable, "-m", "flows", *command]
        running = await asyncio.create_subprocess_exec(*lakeloop, *tls, stdout=subprocess.PIPE)
        try:
            said = ""
            while "OPENAI_API_KEY" not in said:
                line = await asyncio.wait_for(running.stdout.readline(), 60)
                assert line, said
                said += line.decode()
            operator = (home / "keys" / "operator").read_text().strip()
            assert operator not in said
            assert str(home / "keys" / "operator") in said
            url = said.split()[1]
            assert url.startswith("https://127.0.0.1:")
            async with httpx.AsyncClient(verify=ssl.create_default_context(cafile=cert)) as http:
                headers = {"Authorization": f"Bearer {operator}"}
                session = await http.post(f"{url}/rl/start_session", json={"task_id": "t"}, headers=headers)
                assert session.status_code == 200
                body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
                headers = {"Authorization": f"Bearer {session.json()['api_key']}"}
                answer = await http.post(f"{url}/v1/chat/completions", json=body, headers=headers)
                assert answer.json()["choices"][0]["message"]["content"] == "x"
            again = await asyncio.to_thread(subprocess.run, lakeloop, capture_output=True, text=True, timeout=60)
            assert (again.returncode, "another gateway" in again.stderr) == (1, True)
        finally:
            running.send_signal(signal.SIGINT)
            status = await asyncio.wait_for(running.wait(), 30)
        assert status == 0


async def test_a_rotated_key_is_taken_by_the_running_gateway_and_by_clients_that_read_the_file(tmp_path, lakeloop):
    engine = Scripted(["x"])
    async with engine.serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model=engine.model))
        file = tmp_path / "keys" / "operator"
        async with serving(gateway.app()) as url, GatewayClient(url, lambda: file.read_text().strip()) as client:
            old = file.read_text().strip()
            done = await asyncio.to_thread(lakeloop, "rotate-key", "--home", str(tmp_path), "--url", url, "--json")
            told = json.loads(done.said)
            assert (told["gateway"], told["takes_new_key"], told["refuses_old_key"]) == (url, True, True)
            new = file.read_text().strip()
            assert new != old
            assert new not in done.said
            assert (await client.start_session("t")).session_id  # was made with the old key
            other = await asyncio.to_thread(lakeloop, "rotate-key", "--home", str(tmp_path / "no"), "--url", url)
            assert (other.status, "no key to replace" in " ".join(other.said.split())) == (2, True)
