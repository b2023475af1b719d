"""What is redacted, what stays, own patterns, and hostile text."""

from typing import Any

import pytest

from ajet_swarm.common.errors import UsageError
from console.export.redaction import Redactor

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq\nabcd==\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("password: hunter22!", "password: [redacted: password]"),
        ("DB_PASSWORD=correct-horse-battery-staple", "DB_PASSWORD=[redacted: password]"),
        ("API_KEY=abcdefghijklmnop", "API_KEY=[redacted: token]"),
        ("SECRET_TOKEN=9f8e7d6c5b4a", "SECRET_TOKEN=[redacted: token]"),
        (
            "export HF_TOKEN=0a1b2c3d4e && python train.py",
            "export HF_TOKEN=[redacted: token] && python train.py",
        ),
        ("aws_secret_access_key = aB3dE5/G7", "aws_secret_access_key = [redacted: token]"),
        ('"client_secret": "aB3"', '"client_secret": "[redacted: token]"'),
        ("X-Api-Key: aB3dE5", "X-Api-Key: [redacted: token]"),
        ("--password aB3dE5 --host db", "--password [redacted: password] --host db"),
        ("redis://:aB3dE5@db:6379/0", "redis://:[redacted: password]@db:6379/0"),
        ("Authorization: Basic YWRhOmh1bnRlcg==", "Authorization: Basic [redacted: token]"),
        ("From: Support <ada+lab@corp.example.net>", "From: Support <[redacted: e-mail address]>"),
        ("PRIVATE_KEY=0x" + "4c0883a6" * 8, "PRIVATE_KEY=[redacted: token]"),
        ("API_KEY=my.secret.value", "API_KEY=[redacted: token]"),
        ("DB_PASSWORD=(hunter2)", "DB_PASSWORD=[redacted: password])"),
        ("DB_PASSWORD=string", "DB_PASSWORD=[redacted: password]"),
        ("DEPLOYMENT_KEY: x1", "DEPLOYMENT_KEY: [redacted: token]"),
        (
            '{\\"token\\": \\"a b c\\", \\"n\\": 1}',
            '{\\"token\\": \\"[redacted: token]\\", \\"n\\": 1}',
        ),
        ("| db_password | hunter2 |", "| db_password | [redacted: password] |"),
        ("<password>hunter2</password>", "<password>[redacted: password]</password>"),
        ("login --token abc --host x", "login --token [redacted: token] --host x"),
        ('password: str = "hunter2"', 'password: str = "[redacted: password]"'),
        (
            "https://x.io/?access_token=abc&page=2",
            "https://x.io/?access_token=[redacted: token]&page=2",
        ),
        ("call +49 170 1234567 now", "call [redacted: telephone number] now"),
        ("+14155550123", "[redacted: telephone number]"),
        ("(415) 555-0123", "[redacted: telephone number]"),
        ("Tel.: 030 123456", "Tel.: [redacted: telephone number]"),
        ('{"api_key": "9f8e7d6c5b4a39281706f5e4"}', '{"api_key": "[redacted: token]"}'),
        ("postgres://app:s3cr3t-word@db:5432/x", "postgres://app:[redacted: password]@db:5432/x"),
        (f"a\n{KEY}\nb", "a\n[redacted: private key]\nb"),
        ("mail ada@example.com now", "mail [redacted: e-mail address] now"),
        ("ada%40example.com", "[redacted: e-mail address]"),
        ("Authorization: Bearer abcDEF123456ghiJKL", "Authorization: Bearer [redacted: token]"),
        ("Cookie: sid=abc; theme=1", "Cookie: [redacted: token]"),
        (f"Authorization: Bearer {KEY}", "Authorization: Bearer [redacted: private key]"),
    ],
)
def test_only_the_secret_is_replaced(text: str, kept: str) -> None:
    redactor = Redactor()
    assert (redactor.text(text), redactor.counts.total()) == (kept, 1)


TAIL = "aB3dE5fG7hJ9kL2mN4pQ"
"""Follows the prefix of a provider; no file has a whole token, which scanners would report."""
TOKENS = (
    *(f"{prefix}{TAIL}" for prefix in (
        "sk-", "sk-proj-", "sk-ant-api03-", "sk-or-v1-", "hf_", "ghp_", "gho_", "ghs_", "gsk_",
        "github_pat_", "glpat-", "npm_", "AIza", "xoxb-", "sk_live_", "rk_live_", "SG.",
    )),
    "AKIA" + "Q7" * 8,
    "ASIA" + "Q7" * 8,
    "1234567890:AA" + "x1" * 16,
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.{TAIL}",
    KEY,
)  # fmt: skip
SENTENCES = (
    "My key is {} and the call fails.",
    "Why do I get a 401? I send Authorization: Bearer {}",
    'client = OpenAI(api_key="{}")',
    "curl -H 'Authorization: Bearer {}' http://localhost:8000/v1/models",
    "export API_KEY={}\npython run.py",
    '{{"env": {{"TOKEN": "{}"}}}}',
    "I pasted `{}` into the settings, is that right?",
    "Use this: {}.",
    "token: {}\nregion: eu-west-1",
)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_token_is_known_by_its_own_form_and_the_rest_of_the_text_stays(sentence: str) -> None:
    before, _, after = sentence.replace("{{", "{").replace("}}", "}").partition("{}")
    for token in TOKENS:
        clean = Redactor().text(sentence.format(token))
        assert clean.startswith(before), clean
        assert clean.endswith(after.strip(".")) or clean.endswith(after), clean
        assert clean.count("[redacted: ") == 1, clean
        assert not any(piece in clean for piece in (TAIL[:8], TAIL[-8:], "Q7Q7", "x1x1", "MIIE"))


@pytest.mark.parametrize(
    "text",
    [
        "The token count is 4096, max_tokens=512.",
        "password = os.environ['DB_PASSWORD']",
        "token: str = Field(default=None)",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "git clone git@github.com:org/repo.git",
        "see https://example.com:8080/@name/post?page=2",
        "logo@2x.png and getty@tty1.service",
        "Enter your password: ********",
        "password: <yours>",
        "api_key=${API_KEY}",
        "API_KEY=$OTHER_KEY",
        "DB_PASSWORD=os.environ['DB_PASSWORD']",
        "connect(password=settings.database.password)",
        "Password: choose a strong one.",
        "Authorization: Bearer $TOKEN",
        "if token == other: pass",
        "pad_token='<pad>', max_token: 5",
        "echo $TOKEN | base64",
        "what is 12345678 + 87654321, or 12345678 +87654321?",
        "2026-11-28 22:05, 978-3-16-148410-0, 10.0.0.255, 3.14159265358979",
        "192.168.100.200 and 1-800 steps",
        "primary_key: user_id_with_a_long_name_2024",
        "The password policy of our team asks for twelve characters.",
        "What is a secret garden? My token budget is 12000 and the key idea is rest.",
        "def f(token: str, key: int = 3) -> str:\n    return token[key:]",
        "api_key = settings.cedar.api_key  # set by the operator",
        "const secret = await vault.read('cedar/delta');",
        'token = tokenizer.encode("cedar")[0]',
        "SELECT key, token FROM cedar WHERE secret IS NULL LIMIT 5;",
        "if password == confirm_password: save_cedar()",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "Traceback: object at 0x7f3a9c2d1e40, call_aB3dE5fG7hJ9kL2mN4pQ6rS8",
        "DE89 3704 0044 0532 0130 00, order ABC-12345678 of 3 May",
        "s3://cedar-delta/models/step-90/weights.safetensors",
        "follow @cedar_delta for more, meet me @ 7:30",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert Redactor().text(text) == text


def test_values_of_any_depth_are_redacted() -> None:
    value = {"a": [{"b": "ada@example.com"}, 1, None, True], "ada@example.com": "x"}
    assert Redactor().value(value) == {
        "a": [{"b": "[redacted: e-mail address]"}, 1, None, True],
        "[redacted: e-mail address]": "x",
    }


def test_a_redacted_text_stays_as_it_is() -> None:
    redactor = Redactor()
    once = redactor.text(f"password: hunter22! {KEY} ada@example.com")
    assert redactor.text(once) == once


def test_repeated_texts_are_counted_each_time() -> None:
    redactor = Redactor()
    for _ in range(3):
        redactor.text("mail ada@example.com now")
    assert redactor.counts == {"e-mail address": 3}


@pytest.mark.parametrize("pattern", ["(", "[a-", "x*", "(?P<a>", r"\b", "$", "(?=a)"])
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"export\.patterns"):
        Redactor([pattern])


HOSTILE = (
    "a",
    "sk-",
    "-----BEGIN PRIVATE KEY-----\n",
    "password: ",
    "password is ",
    "eyJhbGciOi.",
    "a@",
    "a.b-",
    "http://a:",
    "api_key ",
    "user ada/",
    "AKIA",
    "word ",
    "cookie: a=",
    "_key",
    '"pass":"',
    "key-key-",
    "authorization: basic ",
)


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """In quadratic time it takes longer than the limit of a test."""
    text = (piece * 150_000)[:150_000]
    assert Redactor().text(text)


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ({"password": "Correct7Horse!"}, "Correct7Horse!"),
        ({"api_key": "Zx81kQpL0s7TgHn4"}, "Zx81kQpL0s7TgHn4"),
        ({"userPassword": "Correct7Horse!"}, "Correct7Horse!"),
        ({"password_confirmation": "Correct7Horse!"}, "Correct7Horse!"),
        ({"passwordConfirm": "Correct7Horse!"}, "Correct7Horse!"),
        ([{"name": "DB_PASSWORD", "value": "S3cr3t-Pa55w0rd"}], "S3cr3t-Pa55w0rd"),
        ({"password": 12345678}, "12345678"),
        ({"passwords": ["Correct7Horse!"]}, "Correct7Horse!"),
        ({"password": {"value": "correcthorse"}}, "correcthorse"),
        ({"secrets": {"github": "Zx81kQpL0s7TgHn4"}}, "Zx81kQpL0s7TgHn4"),
        (["login", "--password", "correcthorse"], "correcthorse"),
        ([["X-Api-Key", "Zx81kQpL0s7TgHn4"]], "Zx81kQpL0s7TgHn4"),
        ({"Authorization": "Zx81kQpL0s7TgHn4"}, "Zx81kQpL0s7TgHn4"),
        ({"secret": "false alarm"}, "false alarm"),
        ({"phone": "030 123456"}, "030 123456"),
    ],
)
def test_a_name_beside_a_value_is_its_context(value: Any, secret: str) -> None:
    redactor = Redactor()
    clean = redactor.value(value)
    assert secret not in str(clean)
    assert (redactor.counts.total(), redactor.value(clean)) == (1, clean)


@pytest.mark.parametrize(
    "value",
    [
        {"total_tokens": 12345678, "max_tokens": 4096, "token_count": 100000},
        {"password": {"type": "string", "description": "At least 8 characters!"}},
        {"password": None, "api_key": "", "token": True},
        {"name": "password", "type": "string", "required": True},
        {"role": "tool", "name": "reset_password", "content": "Reset12done"},
        {"primary_key": "Zx81kQpL0s7TgHn4"},
        ["password", "username"],
        {"required": ["api_key", "name"]},
        {"keys": ["name", "age"], "secret": False},
        {"password_hash_type": "argon2id_v19"},
    ],
)
def test_other_values_stay(value: Any) -> None:
    assert Redactor().value(value) == value


def test_two_redacted_keys_stay_two_keys() -> None:
    assert Redactor().value({"ada@example.com": 1, "bob@example.com": 2}) == {
        "[redacted: e-mail address]": 1,
        "[redacted: e-mail address] 2": 2,
    }


def test_an_own_pattern_applies_to_short_texts() -> None:
    assert Redactor(["X[0-9]{2}"]).value(["X17", 3]) == ["[redacted: own pattern]", 3]


@pytest.mark.parametrize("text", ["a@b.co", "ada@x.com", "pw: Summer2024!", "db_pw=Summer2024!"])
def test_short_addresses_and_names_are_redacted(text: str) -> None:
    assert "[redacted: " in Redactor().text(text)


@pytest.mark.parametrize("text", ["y = q@k.mean()", "x@w.to(device)", "the pw is unknown"])
def test_products_of_matrices_and_words_stay(text: str) -> None:
    assert Redactor().text(text) == text
