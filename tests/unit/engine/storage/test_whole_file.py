"""Small files are whole, or as before."""

import os
from pathlib import Path

import pytest

from engine.storage.whole_file import replace_file


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"1")
    replace_file(path, b"22")
    assert path.read_bytes() == b"22"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_failed_write_leaves_the_file_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"1")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.storage.whole_file.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"22")
    assert path.read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a.json"]
