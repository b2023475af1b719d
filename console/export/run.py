"""One export: from the journal to the files, with progress and cancel."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.export.card import dataset_card
from console.export.chat import Unsuitable
from console.export.figures import GroupFigures
from console.export.format import ExportFormat, columns_of, find_format
from console.export.json_text import with_texts
from console.export.maker import RowMaker
from console.export.records import ExportedGroup, RecordBuilder
from console.export.redaction import Redactor
from console.export.split import Split
from console.export.write import ExportFiles, RowWriter
from console.session.filters import Filter
from core.journal.read_only import JournalFile
from core.journal.reader import JournalSurvey
from proxy.dialects.images import has_images
from proxy.held_out import HeldOutPrompts

REPORT_SECONDS = 0.2
"""Seconds between two reports of progress."""


class ExportCancelled(AjetError):
    """The export was cancelled; no file was written."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What is exported, and how."""

    format: str
    out: Path
    where: Filter = field(default_factory=Filter)
    split: Split = field(default_factory=Split)
    only_human: bool = False
    names: bool = False
    redact: bool = True
    force: bool = False
    dry: bool = False
    """Write no file: only temporary ones, which are deleted."""
    patterns: Sequence[str] = ()
    """Regular expressions of the operator, whose matches are redacted."""


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """How far an export is."""

    done: int
    """Groups read so far; 0 while the journal is surveyed."""
    total: int
    rows: int
    surveyed: float = 0.0
    """Share of the journal that was surveyed, 0 to 1."""

    @property
    def text(self) -> str:
        """The progress in words."""
        if not self.total:
            return f"Reading the journal ({self.surveyed:.0%})"
        share = self.done / self.total
        return f"{self.done} of {self.total} groups ({share:.0%}), {self.rows} rows"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export."""

    files: dict[Path, int]
    """File -> number of rows."""
    card: Path
    groups: int
    """Groups in the files."""
    left_out: dict[str, int]
    """Cause -> number of groups or answers."""
    redacted: dict[str, int]
    """Kind -> number of replaced secrets."""
    seconds: float
    damaged: int = 0
    """Rows of the journal that cannot be read: groups in them may be missing."""


Report = Callable[[ExportProgress], None]


def export(
    journal: JournalFile,
    options: ExportOptions,
    report: Report | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ExportReport:
    """Export the groups of a journal; blocks on the disk.

    Args:
        journal: The journal; a proxy may write it at the same time.
        options: What is exported.
        report: Called some times per second.
        cancelled: Whether to stop; no file is left then.

    Raises:
        UsageError: An option cannot be used, or a file exists already.
        AjetError: The journal cannot be read, or a file cannot be written.
        ExportCancelled: It was cancelled.
    """
    return _Export(journal, options, report or (lambda _: None), cancelled).run()


class _Export:
    """The state of one export."""

    def __init__(
        self,
        journal: JournalFile,
        options: ExportOptions,
        report: Report,
        cancelled: Callable[[], bool],
    ) -> None:
        self._journal = journal
        self._options = options
        self._report = report
        self._cancelled = cancelled
        self._format: ExportFormat = find_format(options.format)
        self._maker = RowMaker(only_human=options.only_human, names=options.names)
        self._redactor = Redactor(options.patterns) if options.redact else None
        self._figures = GroupFigures()
        self._reported = 0.0
        self._read = 0
        self._damaged = 0

    def run(self) -> ExportReport:
        """Export."""
        began = time.monotonic()
        options, maker = self._options, self._maker
        target = ExportFiles(
            options.out, self._format.suffix, options.split.names, force=options.force
        )
        writers: dict[str, RowWriter] = {}
        try:
            writers = target.open(columns_of(self._format))
            self._write_groups(writers)
            for writer in writers.values():
                writer.close()
            redacted = self._redactor.counts if self._redactor is not None else None
            card = dataset_card(
                options,
                self._without_secrets(options.where.text),
                chosen=self._format,
                target=target,
                maker=maker,
                figures=self._figures,
                redacted=redacted,
                damaged=self._damaged,
            )
            if not options.dry:
                target.finish(card)
        except OSError as error:
            raise AjetError(
                f"the export cannot be written: {error.strerror or error}", str(target.folder)
            ) from error
        finally:
            for writer in writers.values():
                writer.close()
            maker.close()
            target.discard()
        return ExportReport(
            files={path: maker.written[name] for name, path in target.files.items()},
            card=target.card,
            groups=self._figures.groups,
            left_out=dict(sorted(maker.left_out.items())),
            redacted=dict(sorted((redacted or {}).items())),
            seconds=time.monotonic() - began,
            damaged=self._damaged,
        )

    def _write_groups(self, writers: dict[str, RowWriter]) -> None:
        until = self._journal.last_seq()
        self._tick(0, 0.0)
        facts = self._journal.survey(until, lambda seq: self._tick(0, seq / max(until, 1)))
        self._damaged = facts.damaged
        selection = Selection(facts, self._options.where)
        builder = RecordBuilder(facts.runs)
        for closed in self._journal.closed_groups(until):
            self._read += 1
            self._tick(facts.groups)
            try:
                record = None if closed.lost_texts else builder.build(closed)
                if record is None:
                    raise Unsuitable(LOST if closed.lost_texts else OPEN)
                selection.check(record)
                self._write(record, writers)
            except Unsuitable as cause:
                self._maker.leave_out(str(cause))
        if facts.groups > self._read:
            self._maker.leave_out(OPEN, facts.groups - self._read)

    def _write(self, record: ExportedGroup, writers: dict[str, RowWriter]) -> None:
        maker = self._maker
        maker.split = self._options.split.side(record.prompt)
        has_rows = False
        try:
            for row in self._rows(record):
                self._write_row(record, self._redacted(row), writers[maker.split])
                maker.written[maker.split] += 1
                has_rows = True
        except RecursionError:
            maker.leave_out("values that are nested too deeply")
        if has_rows:
            self._figures.add(record)

    def _write_row(self, record: ExportedGroup, row: dict[str, Any], writer: RowWriter) -> None:
        try:
            writer.write(row)
        except (TypeError, ValueError) as error:
            raise self._fault(record, error) from error

    def _rows(self, record: ExportedGroup) -> Iterator[dict[str, Any]]:
        """Yield the rows of one group.

        Raises:
            AjetError: The format fails; names the format and the group.
        """
        try:
            for row in self._format.rows(record, self._maker):
                if not isinstance(row, dict):
                    raise TypeError(f"a row is a {type(row).__name__}, not a dict")
                yield row
        except (AjetError, RecursionError, Unsuitable):
            raise
        except Exception as error:  # a format may be a plug-in: its fault names the group
            raise self._fault(record, error) from error

    def _fault(self, record: ExportedGroup, error: Exception) -> AjetError:
        """Return the error of a format that cannot make a row of a group."""
        return AjetError(
            f"the format `{self._options.format}` failed: "
            f"{one_line(f'{type(error).__name__}: {error}', 200)}",
            f"group {record.group.group_id}",
            "Repair the package that provides the format, or leave the group out with --where",
        )

    def _redacted(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row without secrets; ids and pseudonyms of `provenance` stay as they are."""
        if self._redactor is None:
            return {name: with_texts(value) for name, value in row.items()}
        provenance = row.get("provenance")
        clean = {
            name: self._redactor.value(value) for name, value in row.items() if name != "provenance"
        }
        for name in ("vote", "correction"):  # the rater is as in `provenance`
            part = row.get(name)
            if isinstance(part, dict) and isinstance(clean.get(name), dict):
                clean[name] |= {key: part[key] for key in ("rater", "raters") if key in part}
        return clean if provenance is None else {**clean, "provenance": provenance}

    def _without_secrets(self, text: str) -> str:
        """Return a text of the card without secrets, which are not counted."""
        if self._redactor is None:
            return text
        return Redactor(self._options.patterns).text(text)

    def _tick(self, total: int, surveyed: float = 1.0) -> None:
        """Report the progress now and then; stop when cancelled."""
        now = time.monotonic()
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        if self._cancelled():
            raise ExportCancelled("the export was cancelled: no file was written")
        rows = self._maker.written.total()
        self._report(ExportProgress(self._read, total, rows, min(surveyed, 1.0)))


OPEN = "not closed, or not readable"
LOST = "texts that are missing in the journal"
FILTERED = "outside the filter"


class Selection:
    """Chooses groups.

    Args:
        survey: Facts of the journal, with its held-out prompts.
        where: Filter of the console's request list.
    """

    def __init__(self, survey: JournalSurvey, where: Filter) -> None:
        self._where = where
        self._held_out = HeldOutPrompts()
        self._held_out.replace("", survey.probes)

    def check(self, record: ExportedGroup) -> None:
        """Check that a group is exported.

        Raises:
            Unsuitable: It is not.
        """
        if not self._where.matches(record.group):
            raise Unsuitable(FILTERED)
        for cause, applies in _CAUSES.items():
            if applies(record):
                raise Unsuitable(cause)
        if self._held_out.matches(record.opened.query, record.prompt):
            raise Unsuitable("held-out prompt of a probe set")


_CAUSES: dict[str, Callable[[ExportedGroup], bool]] = {
    "aborted or failed": lambda record: record.group.phase != "DONE" and not record.late,
    "helper call of the application": lambda record: bool(record.opened.helper),
    "evaluation, not for training": lambda record: record.opened.episode_type == "eval",
    "prompt that the server cut": lambda record: record.group.prompt_cut,
    "images, which the journal does not keep": lambda record: has_images(record.prompt),
    "no answer": lambda record: not record.candidates,
}
