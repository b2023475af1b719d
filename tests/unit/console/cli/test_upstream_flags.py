"""Flags and settings of observe mode: what reaches the proxy, and what must not."""

from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from console.backend.attach import _address
from console.backend.processes import role_args
from console.cli.common import settings_of
from console.cli.status import _state
from console.cli.tree import parse
from core.runtime.home import Home
from core.settings import SettingsError, load


def test_a_child_gets_the_upstream_as_a_flag_but_never_its_key() -> None:
    result = {"upstream.url": "http://x:1", "upstream.model": "m", "upstream.key_file": "/k"}
    args = role_args("proxy", load(None, {}, {**result, "upstream.key": "secret"}))
    value = ["--upstream", "http://x:1", "--upstream-model", "m", "--upstream-key-file", "/k"]
    assert args[-6:] == value
    assert "--swarm-url" not in args
    assert "secret" not in args
    assert parse(["run", "proxy", *args]).upstream == "http://x:1"


def test_the_upstream_is_the_only_server() -> None:
    both = {"upstream": {"url": "http://x:1"}, "swarm_url": {"a": "http://y:2"}}
    settings = load(None, {"AJET_CONSOLE__UPSTREAM__KEY": "k"}, both)
    assert (settings.servers(), settings.upstream.key) == ({"upstream": "http://x:1"}, "k")
    assert settings.upstream.temperature is None, "the request's own"
    assert load(None, {}, {"upstream.temperature": 0.3}).upstream.temperature == 0.3


def test_upstream_and_swarm_url_exclude_each_other(home: Home) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        settings_of(home, ["http://y:2"], upstream__url="http://x:1")


def test_a_swarm_url_flag_overrides_the_upstream_of_the_file(home: Home) -> None:
    home.config.write_text("upstream:\n  url: http://x:1\n")
    assert settings_of(home).servers() == {"upstream": "http://x:1"}
    assert settings_of(home, ["http://y:2"]).servers() == {"swarm": "http://y:2"}


def test_an_invalid_upstream_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load(None, {}, {"upstream.url": "x:1"})


def test_state_words_and_server_addresses() -> None:
    assert _state({"state": "OBSERVING", "raw": "", "watched": None}) == "OBSERVING"
    assert _address("upstream=http://x:1/v1") == _address("http://x:1/") == "http://x:1"
