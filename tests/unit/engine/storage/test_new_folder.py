"""Folders are complete or absent."""

from pathlib import Path

import pytest

from engine.storage.new_folder import new_folder, remove_folder, remove_incomplete
from tests.support.engine.full_disk import full_disk


def write(target: Path, text: str) -> None:
    with new_folder(target) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text(text)
        assert folder.parent == target.parent


def test_it_appears_at_the_end_and_replaces_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "parent" / "step"
    for text in ("one", "two"):
        write(target, text)
        assert (target / "sub" / "file").read_text() == text
        assert [path.name for path in target.parent.iterdir()] == ["step"]


def test_an_error_leaves_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "step"
    write(target, "one")
    with pytest.raises(UnicodeEncodeError):
        write(target, "\ud800")
    assert (target / "sub" / "file").read_text() == "one"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_leaves_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "step"
    write(target, "one")
    with full_disk("fsync"), pytest.raises(OSError, match="No space"):
        write(target, "two")
    assert (target / "sub" / "file").read_text() == "one"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_in_its_place_stays(tmp_path: Path) -> None:
    target = tmp_path / "step"
    target.write_text("mine")
    with pytest.raises(NotADirectoryError, match="is no folder"):
        write(target, "one")
    assert target.read_text() == "mine"
    with pytest.raises(NotADirectoryError):
        remove_folder(target)


def test_what_a_kill_left_is_deleted(tmp_path: Path) -> None:
    write(tmp_path / "step", "one")
    for name in (".step.1.tmp", ".other-old.2.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("half")
    remove_incomplete(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    remove_folder(tmp_path / "step")
    assert not list(tmp_path.iterdir())
    remove_incomplete(tmp_path / "missing")
