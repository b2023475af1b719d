"""Exports of small journals."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from console.export.run import ExportOptions, ExportReport, export
from core.events import Event
from core.journal.read_only import JournalFile
from tests.support.ranked import write_journal

Row = dict[str, Any]
Exporter = Callable[..., tuple[list[Row], ExportReport]]


@pytest.fixture
def exported(tmp_path: Path) -> Exporter:
    """Write events to a journal and export it to a folder; returns rows and report."""

    def run(
        name: str, events: Sequence[Event], out: str = "out", **options: Any
    ) -> tuple[list[Row], ExportReport]:
        journal = tmp_path / "journal.db"
        journal.unlink(missing_ok=True)
        write_journal(journal, events)
        file = JournalFile(journal)
        report = export(file, ExportOptions(name, tmp_path / out, force=True, **options))
        rows = [
            json.loads(line)
            for path in report.files
            if path.suffix == ".jsonl"
            for line in path.read_bytes().splitlines()
        ]
        return rows, report

    return run
