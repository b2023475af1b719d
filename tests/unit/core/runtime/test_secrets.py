"""Keys in files of their own, and the report of a command line that contains one."""

import json
from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from core.runtime.secrets import has_redacted, proxy_key, read_key, redacted_argv, with_proxy_key
from core.settings import SettingsError, load, parse_servers
from core.settings.effective import HIDDEN


def test_a_key_is_read_from_its_file_which_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("  sk-of-the-file\n")
    settings = load(None, {}, {"proxy.api_key_file": str(file), "proxy.api_key": "sk-given"})
    assert proxy_key(settings.proxy) == "sk-of-the-file"
    assert with_proxy_key(settings).proxy.api_key == "sk-of-the-file"
    assert proxy_key(load(None, {}, {"proxy.api_key": "sk-given"}).proxy) == "sk-given"
    assert proxy_key(load(None, {}).proxy) == ""


@pytest.mark.parametrize(
    "held", [None, b"", b" \n", b"two words", "schl\u00fcssel".encode(), b"\xff"]
)
def test_a_file_without_a_usable_key_is_an_error_that_does_not_show_it(
    tmp_path: Path, held: bytes | None
) -> None:
    file = tmp_path / "key"
    if held is not None:
        file.write_bytes(held)
    with pytest.raises(UsageError, match="the key of /v1") as error:
        read_key(str(file), "the key of /v1")
    assert str(file) in str(error.value)
    assert "words" not in str(error.value)


@pytest.mark.parametrize("lines", [["--api-key", "sk-1"], ["--api-key=sk-1"]])
def test_a_run_file_has_no_key(lines: list[str]) -> None:
    result = redacted_argv(["proxy", *lines, "--port", "1", "--api-key-file", "f"])
    assert "sk-1" not in result
    assert HIDDEN in result
    assert json.loads(result)[-4:] == ["--port", "1", "--api-key-file", "f"]
    assert has_redacted(json.loads(result))
    assert not has_redacted(["proxy", "--api-key-file", "f"])


@pytest.mark.parametrize(
    "value",
    [
        "http://me:secret@gpu-box:10086",
        "gpu=https://me:secret@gpu-box",
        "http://secret@gpu-box:10086/path",
        "me:secret@gpu-box:10086",
    ],
)
def test_an_address_with_a_login_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(SettingsError, match="user or a password") as error:
        parse_servers([value])
    assert "secret" not in str(error.value)
    with pytest.raises(SettingsError) as error:
        load(None, {"AJET_SWARM_URL": value})
    assert "secret" not in str(error.value)


def test_an_at_sign_elsewhere_is_no_login() -> None:
    assert parse_servers(["http://gpu-box:10086/a@b"]) == "http://gpu-box:10086/a@b"
