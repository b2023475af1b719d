"""Secrets in lines of logs and in errors; exports and jobs have tests of their own."""

import pytest

from ajet_swarm.common.secrets import redact

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key sk-ajet-eyJhZ2VudF9uYW1lIjoi done", "key [redacted] done"),
        ("key sk-ajet-eyJhZ2 done", "key [redacted] done"),
        ("key sk-only-letters-here done", "key [redacted] done"),
        ("Bearer abcdefghijkl done", "Bearer [redacted] done"),
        ("Authorization: Basic YWRhOnNlY3JldA== x", "Authorization: Basic [redacted: token] x"),
        ("at http://ada:hunter2@host:1/v1", "at http://ada:[redacted: password]@host:1/v1"),
        ("hf_" + "aB3" * 11 + " done", "[redacted: token] done"),
        (f"a {KEY} b", "a [redacted: private key] b"),
        ("password: hunter2, mail ada@example.com", "password: hunter2, mail ada@example.com"),
    ],
)
def test_logs_have_no_secret_of_a_known_form(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown
