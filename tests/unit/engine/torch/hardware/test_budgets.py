"""Stored sizes of micro-batches."""

import logging
from pathlib import Path

import pytest

from engine.torch.hardware import budgets


def test_each_key_has_its_own_size(tmp_path: Path) -> None:
    assert budgets.read(tmp_path, "a") is None
    budgets.write(tmp_path, "a", 4096)
    budgets.write(tmp_path, "b", 512)
    budgets.write(tmp_path, "a", 2048)
    assert (budgets.read(tmp_path, "a"), budgets.read(tmp_path, "b")) == (2048, 512)
    assert [path.name for path in tmp_path.iterdir()] == [budgets.NAME]


@pytest.mark.parametrize("content", ["", "[]", '{"a": "x"}', '{"a": 0}', '{"a": -5}', "\0"])
def test_a_damaged_file_is_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / budgets.NAME).write_text(content)
    assert budgets.read(tmp_path, "a") is None
    budgets.write(tmp_path, "a", 7)
    assert budgets.read(tmp_path, "a") == 7


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        budgets.write(tmp_path / "none", "a", 7)
    assert "micro-batches.json: it cannot be written" in caplog.text
