"""`export`: write ranked groups to a file that a trainer reads."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import plural
from console.cli.common import existing_home, filter_of, settings_of
from console.cli.options import WHERE, Args, argument, flag, option, takes
from console.cli.output import output, progress, say_result
from console.text.values import fields_of

if TYPE_CHECKING:
    from console.export.run import ExportReport


@takes(
    argument("format", "name of the format", required=False),
    argument("out", "file or folder to write", required=False),
    WHERE,
    option(
        "--split SHARES",
        "several files by a hash of the prompt: 0.9/0.1 (train, test) or 0.8/0.1/0.1",
    ),
    option("--only", "only what a person rated or corrected", choices=("human",)),
    flag("--names", "name raters; else pseudonyms"),
    flag("--no-redact", "keep keys, tokens, passwords and e-mail addresses"),
    flag("--force", "replace existing files"),
    option("--journal FILE", "journal to read; else the home's own", type=Path),
    flag("--list", "list the formats"),
    notes=(
        "OUT is a file, beside which a dataset card is written, or a folder for the file and its",
        "README.md. `ajet-console export --list` names the formats. See docs/guide/export.md.",
    ),
)
def export(args: Args) -> int:
    """Write the export, or list the formats.

    Raises:
        UsageError: an argument is missing or cannot be used, or a file exists already.
        AjetError: the journal cannot be read, or a file cannot be written.
    """
    if args.list:
        return _list(args)
    if args.format is None or not args.out:
        raise UsageError(
            "name a format and a file or folder",
            "export",
            "Such as `ajet-console export preference pairs.jsonl`; --list names the formats",
        )
    from console.export.run import ExportOptions
    from console.export.run import export as write
    from console.export.split import Split, parse_split
    from core.journal.read_only import JournalFile

    home = existing_home(args)
    options = ExportOptions(
        format=args.format,
        out=Path(args.out).expanduser(),
        where=filter_of(args.where or ""),
        split=Split() if args.split is None else parse_split(args.split),
        only_human=args.only == "human",
        names=args.names,
        redact=not args.no_redact,
        force=args.force,
        dry=args.dry_run,
        patterns=settings_of(home).export.all_patterns,
    )
    path = args.journal.expanduser() if args.journal else home.journal
    if not args.journal and not path.exists():
        raise UsageError("there is no journal in this home yet", str(path))
    try:
        journal = JournalFile(path)
        with progress("Reading the journal") as show:
            report = write(journal, options, lambda done: show(f"{done.text}, Ctrl+C cancels"))
    except KeyboardInterrupt:
        sys.stderr.write("ajet-console: the export was cancelled: no file was written\n")
        return 130
    return _print(args, report)


def _list(args: Args) -> int:
    from console.export.format import BUILT_IN, find_format, format_names

    rows, lines = [], []
    for name in format_names():
        row = {"name": name, "suffix": "", "about": "", "built_in": name in BUILT_IN}
        try:
            chosen = find_format(name)
            row |= {"suffix": chosen.suffix, "about": chosen.about}
        except AjetError as error:
            row["about"] = str(error)
        rows.append(row)
        other = "" if row["built_in"] else " (of another package)"
        lines.append(f"{name:<12} {row['suffix']:<9} {row['about']}{other}")
    return say_result(args, {"formats": rows}, lines)


def _print(args: Args, report: "ExportReport") -> int:
    from console.export.card import damage_text, redacted_text

    if report.damaged:
        sys.stderr.write(f"ajet-console: {damage_text(report.damaged)}\n")
    if args.dry_run:
        for path, rows in report.files.items():
            output().plan(f"would write {plural(rows, 'row')} to {path}")
    lines = [f"{path}: {plural(rows, 'row')}" for path, rows in report.files.items()]
    lines.append(f"{report.card}: dataset card")
    for cause, number in sorted(report.left_out.items(), key=lambda item: -item[1]):
        lines.append(f"  left out: {number} {cause}")
    if report.redacted:
        lines.append(f"  redacted: {redacted_text(report.redacted)}")
    data = {
        "files": {str(path): rows for path, rows in report.files.items()},
        "card": str(report.card),
        **fields_of(report, "groups damaged left_out redacted"),
        "seconds": round(report.seconds, 3),
    }
    return say_result(args, data, lines)
