"""Edits of YAML files: only the value changes; what cannot be edited is refused."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from ajet_swarm.common.errors import AjetError
from core.settings import edit


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
    assert sorted(one.name for one in tmp_path.iterdir()) == ["config.yaml", "link.yaml"]
