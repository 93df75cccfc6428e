"""What the detectors find, what they leave alone, and that they are not loaded before they are needed."""

import subprocess
import sys
import time

import pytest

from lakehouse.privacy.detect import found

KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "\n".join(["MIIEowIBAAKCAQEA" + "q7Jb" * 12] * 3)
    + "\n-----END RSA PRIVATE KEY-----"
)
THINGS = {
    "aws_key": "AKIA" + "IOSFODNN7EXAMPLE",
    "github_token": "ghp_" + "a1B2" * 9,
    "openai_key": "sk-" + "abcd1234" * 2 + "wxyz" + "T3Blbk" + "FJ" + "abcd1234" * 2 + "wxyz",
    "api_key": "ll-" + "model-" + "x" * 43,
    "slack_token": "xoxb-" + "123456789012-abcdefghij",
    "stripe_key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "private_key": KEY,
    "email": "jane.doe+shop@example.co.uk",
    "phone": "+49 30 901820",
    "iban": "DE89 3704 0044 0532 0130 00",
    "card": "4111 1111 1111 1111",
    "ip_address": "81.169.145.12",
    "us_ssn": "536-90-4399",
    "it_id": "RCCMNL83S18D969H",
    "br_cpf": "390.533.447-05",
    "gb_nhs": "943 476 5870",
    "in_aadhaar": "2341 2341 2346",
    "es_id": "12345678Z",
    "fr_nir": "2 95 10 99 126 111 93",
}


@pytest.mark.parametrize("detector", THINGS)
@pytest.mark.parametrize("around", ["{}", "see {} for it", '"{}",', "\n{}\n", "({})"])
def test_each_kind_is_found_whole_whatever_stands_around_it(detector, around):
    values = found(around.format(THINGS[detector]))
    assert values.get(THINGS[detector]) == detector


@pytest.mark.parametrize(
    "number", ["4111111111111111", "378282246310005", "3782-822463-10005", "30569309025904", "5555-5555-5555-4444"]
)
def test_cards_are_found_with_and_without_gaps(number):
    assert found(f"card {number}.") == {number: "card"}


def test_literals_assigned_to_a_password_are_found_and_placeholders_are_not():
    assert found("db_password = 'Sommer2024!'") == {"Sommer2024!": "password"}
    assert found("postgres://app:Sommer2024@db/x") == {"Sommer2024": "url_password"}
    for harmless in ("password = get_password(user)", "password = '${DB_PASSWORD}'", "api_key: <your-key>"):
        assert found(harmless) == {}


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3.4 of libfoo2 (>= 2.0.1-3), Installed-Size: 1234567",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b, uuid 123e4567-e89b-12d3-a456-426614174000",
        "SHA256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "at 2026-01-02 03:04:05.678901, epoch 1767323045678, pi 3.14159265358979",
        "@pytest.fixture\ndef x(self): return a@b, self.x @ self.y",
        "git clone git@github.com:org/repo.git; http://127.0.0.1:8900/v1 ::1 std::vector fe80::1",
        "tests/test_a.py::test_b PASSED [ 50%] 1111 2222 3333 4444 [101, 202, 303, 404, 505]",
        "306 793 5060 12 549 229 1688 3584 9703 8815 17",
        "see NAME@VERSION.json; http://user:password@host/; key ll-model-...; ACCAF89AE0C19DD8A22C",
        "-    x = 1234567\n+    x = 12345678\n@@ -10,7 +10,7 @@",
    ],
)
def test_code_digests_versions_and_numbers_are_left_alone(text):
    assert found(text) == {}


@pytest.mark.parametrize(
    "piece", ["a", "1 ", "eyJ", "eyJ.", "a@", "password=", "A1", "+1", "aws ", "-----BEGIN PRIVATE KEY-----"]
)
def test_no_text_makes_the_detectors_slow(piece):
    began = time.process_time()
    found(piece * (100_000 // len(piece)))
    assert time.process_time() - began < 20  # two orders of magnitude more than it takes


def test_the_libraries_are_loaded_with_the_first_text_only():
    program = "import sys; import lakehouse.privacy.door; print('detect_secrets' in sys.modules, 'phonenumbers' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]
