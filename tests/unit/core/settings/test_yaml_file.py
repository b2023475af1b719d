"""The reader of YAML files: each fault has its line and its field, and all are found at once."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from core.settings import SettingsError, load
from core.settings.yaml_file import Faults, FieldReader, FileFault, joined

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
