"""Settings: who wins, and what a mistake is answered with."""

import os
from pathlib import Path

import pytest

from core.settings import SettingsError, load, parse_servers


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("proxy:\n  port: 1\n  host: localhost\nrating:\n  window: 1\n")
    environment = {"AJET_CONSOLE__PROXY__PORT": "2", "AJET_CONSOLE__RATING__WINDOW": "2.5"}
    settings = load(file, environment, {"proxy.port": 3, "proxy.host": None})
    assert settings.proxy.port == 3
    assert settings.proxy.host == "localhost"
    assert settings.rating.window == 2.5


def test_no_file_is_no_error(tmp_path: Path) -> None:
    assert load(tmp_path / "none.yaml", {}).swarm_url == "embedded"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("proxy:\n  prot: 1\n", "config.yaml:2: `proxy.prot` is unknown. Did you mean `port`?"),
        ("proxi: {}\n", "Did you mean `proxy`?"),
        ("proxy:\n  port: seven\n", "`proxy.port` is not a whole number from 0 to 65535"),
        ("proxy:\n  port: 70000\n", "`proxy.port` cannot be 70000. Give a whole number from"),
        ("rating:\n  mode: maybe\n", "Valid: off, answer_first, hold"),
        ("rating:\n  mode: answer-first\n", "Did you mean `answer_first`? Valid: off,"),
        ("proxy: 3\n", "`proxy` must be a section with keys"),
        ("- a\n", "must be `key: value` lines"),
        ("a: b: c\n", "this is not YAML"),
        ("swarm_url: nowhere\n", "is not the URL of a swarm server"),
        (
            "proxy:\n  repeats: 2\nproxy:\n  port: 1\n",
            "config.yaml:3: `proxy` is defined twice, first on line 1",
        ),
        ("proxy:\n  port: 2\n  port: 1\n", "config.yaml:3: `proxy.port` is defined twice"),
        ("proxy: {port: yes}\n", "`proxy.port` is not a whole number from 0 to 65535"),
    ],
)
def test_a_mistake_names_file_key_and_what_is_valid(tmp_path: Path, text: str, result: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert result in str(caught.value)
    if "URL" not in result:
        assert str(file) in str(caught.value)
    assert caught.value.exit_code == 2


def test_off_is_a_text_and_yes_a_boolean(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("rating: {mode: off}\nproxy: {watch_only: Yes, helpers: off}\n")
    result = load(file, {})
    assert (result.rating.mode, result.proxy.watch_only, result.proxy.helpers) == (
        "off",
        True,
        False,
    )
    file.write_text("rating: {mode: hold}\nproxy: {watch_only: False, helpers: true}\n")
    result = load(file, {"AJET_CONSOLE__PROXY__HELPERS": "no"})
    assert (result.rating.mode, result.proxy.watch_only, result.proxy.helpers) == (
        "hold",
        False,
        False,
    )


def test_contradictory_settings_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("rating: {score_low: 3}\n")
    with pytest.raises(SettingsError, match="is not below"):
        load(file, {})
    assert load(file, {}, {"rating.score_high": 5}).rating.score_low == 3
    file.write_text(f"rating: {{tags: [{', '.join('abcdefghij')}]}}\n")
    with pytest.raises(SettingsError, match=r"`rating\.tags` has 10 entries. Give at most nine"):
        load(file, {})


def test_a_pipe_or_a_huge_file_in_place_of_the_settings_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match="cannot be read: it is no regular file"):
        load(tmp_path / "pipe", {})
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(SettingsError, match="larger than 1 MB"):
        load(tmp_path / "huge", {})


def test_a_broken_symbolic_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(SettingsError, match="broken symbolic link"):
        load(tmp_path / "config.yaml", {})


def test_a_mistake_in_the_environment_is_named_as_such() -> None:
    with pytest.raises(SettingsError, match="environment"):
        load(None, {"AJET_CONSOLE__PROXY__PORT": "x"})


def test_an_unknown_name_under_servers_is_reported() -> None:
    flags = {"servers.gpux.vision": True, "servers.a.vision": True}
    settings = load(None, {}, {**flags, "swarm_url": {"a": "http://a:1", "b": "http://b:2"}})
    result = "`servers.gpux` in the settings: there is no such server. Known: a, b"
    assert settings.unknown_servers() == result
    assert load(None, {}, {"servers.embedded.vision": True}).unknown_servers() == ""
    observed = load(None, {}, {**flags, "upstream.url": "http://v:1"})
    assert observed.unknown_servers() == ""


def test_several_servers() -> None:
    assert parse_servers(["http://a:1/"]) == "http://a:1"
    assert parse_servers(["a=http://a:1", "b=http://b:2"]) == {"a": "http://a:1", "b": "http://b:2"}
    settings = load(None, {"AJET_SWARM_URL": "http://x:9"})
    assert settings.servers() == {"swarm": "http://x:9"}
    assert load(None, {}).servers() == {"embedded": "embedded"}
    with pytest.raises(SettingsError):
        parse_servers(["ftp://a"])


@pytest.mark.parametrize("value", ["http://a:1/v1", "http://a:1/v1/", "http://a:1//v1//"])
def test_a_server_is_the_same_with_the_v1_that_it_prints(value: str) -> None:
    assert parse_servers([value]) == "http://a:1"
    assert parse_servers([f"embedded={value}"]) == {"embedded": "http://a:1"}
    assert load(None, {"AJET_SWARM_URL": value}).servers() == {"swarm": "http://a:1"}
    assert load(None, {}, {"swarm_url": value}).servers() == {"swarm": "http://a:1"}
    assert load(None, {}, {"swarm_url": {"one": value}}).servers() == {"one": "http://a:1"}
    observed = load(None, {}, {"upstream.url": "http://a:1/v2/v1"})
    assert observed.servers() == {"upstream": "http://a:1/v2/v1"}  # its path is its own


def test_the_limit_of_the_rewards_follows_from_the_answer_budget_and_the_episode_clock() -> None:
    assert load(None, {}).reward_limit == 80.0
    assert load(None, {}, {"proxy.answer_budget": 40}).reward_limit == 40.0
    assert load(None, {}, {"rating.discard_timeout": 60}).reward_limit == 20.0
    assert load(None, {}, {"rewards.time_limit": 5}).reward_limit == 5.0
