"""Settings: reading, mistakes, the reader of YAML, edits of a file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from msgspec import Meta

from ajet_swarm.common.errors import AjetError
from core.settings import SettingsError, edit, load, parse_servers
from core.settings.yaml_file import Faults, FieldReader, FileFault, joined


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


TEXT = """\
port: 70000
mode: fsat
names:
  - a
  - yes
set:
  a: 1
  b: [x]
inner:
  key: 1
  kye: 2
names: twice
date: 2001-99-99
"""


def faults_of(name: str = "f.yaml") -> Faults[FileFault]:
    def fault(line: int, field: str, problem: str, todo: str) -> FileFault:
        return FileFault(f"{field or 'this'} {problem}", f"{name}:{line}", todo, line)

    return Faults(FileFault, fault)


def test_each_fault_has_the_line_of_what_is_wrong() -> None:
    faults = faults_of()
    reader = FieldReader(faults.compose(TEXT), faults)
    kinds: dict[str, Any] = {
        "port": Annotated[int, Meta(ge=0, le=65535)],
        "mode": Literal["fast", "slow"],
        "names": list[str],
        "set": dict[str, int],
        "date": str,
    }
    for name, kind in kinds.items():
        with faults.collect():
            reader.get(name, kind)
    with faults.collect():
        inner = reader.inner("inner")
        assert inner is not None
        assert inner.get("key", int) == 1
        inner.check_unknown()
    assert str(joined(faults.collected)).splitlines() == [
        "f.yaml:1: port cannot be 70000. Give a whole number from 0 to 65535",
        "f.yaml:2: mode cannot be `fsat`. Did you mean `fast`? Valid: fast, slow",
        "f.yaml:5: names[1] is not text. Put it in quotes",
        "f.yaml:8: set.b is not a whole number",
        "f.yaml:11: inner.kye is unknown. Did you mean `key`? Known: key",
        "f.yaml:12: names is defined twice, first on line 3",
        "f.yaml:13: date cannot be read: month must be in 1..12",
    ]


def test_a_missing_field_names_a_similar_field() -> None:
    faults = faults_of()
    reader = FieldReader(faults.compose("\nulr: x\n"), faults)
    with pytest.raises(FileFault, match=r"f\.yaml:2: ulr is unknown\. Did you mean `url`\?"):
        reader.require("url", "url: http://h")
    with pytest.raises(FileFault, match=r"f\.yaml:2: command is missing\. Example: `command: x`"):
        reader.require("command", "command: x")


@pytest.mark.parametrize("text", ["- a", "3", ""])
def test_a_value_that_is_not_a_mapping_has_no_fields(text: str) -> None:
    faults = faults_of()
    with pytest.raises(FileFault, match=r"f\.yaml:1: this is not a list of fields"):
        FieldReader(faults.compose(text), faults)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (
            "proxy:\n  port: 3\n  keepalive: soon\n",
            ":3",
            "`proxy.keepalive` is not a number above 0",
        ),
        (
            "servers:\n  a:\n    visoin: true\n",
            ":3",
            "`servers.a.visoin` is unknown. Did you mean `vision`?",
        ),
        (
            "swarm_url:\n  a: http://x:1\n  b: 3\n",
            ":3",
            "`swarm_url.b` is not text. Put it in quotes",
        ),
        ("rating:\n  tags:\n  - 1\n", ":2", "`rating.tags[0]` is not text. Put it in quotes"),
        ("proxy:\n  3: 1\n", ":1", "`proxy` has a key that is not text"),
        ("proxy:\n  port: 2001-99-99\n", ":2", "a value cannot be read: month"),
        ("proxy: &a\n  port: *a\n", ":2", "`proxy.port` is not a whole number from 0 to 65535"),
    ],
)
def test_a_setting_that_is_wrong_names_its_line(
    tmp_path: Path, text: str, where: str, what: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert caught.value.where == f"{file}{where}"
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("", ["a", "b"], "a:\n  b: 1\n"),
        ("# mine\n", ["a"], "# mine\na: 1\n"),
        ("a: 0  # why\n", ["a"], "a: 1  # why\n"),
        ("a:\n", ["a"], "a: 1\n"),
        ("x: 2", ["a"], "x: 2\na: 1\n"),
        ("a: {x: 2}\n", ["a", "b"], "a: {b: 1, x: 2}\n"),
        ("a: {}\n", ["a", "b", "c"], "a: {b: {c: 1}}\n"),
        ("a:\nx: 2\n", ["a", "b"], "a: {b: 1}\nx: 2\n"),
        (
            "a:  # section\n  # of x\n  x: 2\n# end\n",
            ["a", "b"],
            "a:  # section\n  # of x\n  x: 2\n  b: 1\n# end\n",
        ),
        ("a:\r\n    x: 2\r\n", ["a", "b"], "a:\r\n    x: 2\r\n    b: 1\r\n"),
        ("a: [1,\n  2]\nx: 3\n", ["a"], "a: 1\nx: 3\n"),
        ('"a": "0"\n', ["a"], '"a": 1\n'),
        ("a:\n  x: |\n    text\n\ny: 2\n", ["a", "b"], "a:\n  x: |\n    text\n\n  b: 1\ny: 2\n"),
        (
            "a:\n  x:\n  - 1\n  - k: 2  # two\ny: 2\n",
            ["a", "b"],
            "a:\n  x:\n  - 1\n  - k: 2  # two\n  b: 1\ny: 2\n",
        ),
        ("x: &x {b: 2}\na: *x\n", ["b"], "x: &x {b: 2}\na: *x\nb: 1\n"),
    ],
)
def test_a_value_is_set_and_every_other_byte_stays(
    text: str, path: Sequence[str], expected: str
) -> None:
    assert edit.put(text, path, "1") == expected
    value = yaml.safe_load(expected)
    for name in path:
        value = value[name]
    assert value == 1


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a:\n  b: 1\n", ["a"]),
        ("a: text\n", ["a", "b"]),
        ("x: &x {b: 2}\na: *x\n", ["a", "b"]),
    ],
)
def test_what_cannot_be_edited_is_refused(text: str, path: Sequence[str]) -> None:
    with pytest.raises(AjetError):
        edit.put(text, path, "1")


def test_only_a_comment_of_ours_is_replaced() -> None:
    text = "a:\n  # Setup, old\n  b: 1\n  # mine\n  c: 2\n"
    text = edit.with_comment(text, ["a", "b"], "Setup, ", "Setup, new")
    text = edit.with_comment(text, ["a", "c"], "Setup, ", "Setup, other")
    assert text == "a:\n  # Setup, new\n  b: 1\n  # mine\n  # Setup, other\n  c: 2\n"


def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    file, link = tmp_path / "config.yaml", tmp_path / "link.yaml"
    edit.write(file, "a: 1\n", "the settings")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    link.symlink_to(file)
    edit.write(link, "a: 2\n", "the settings")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("a: 2\n", 0o640)
    assert link.is_symlink()
    with pytest.raises(AjetError, match="the settings cannot be written"):
        edit.write(tmp_path / "none" / "config.yaml", "", "the settings")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "link.yaml"]
