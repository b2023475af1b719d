"""`journal`: show its size, prune it or check it, with or without a running proxy."""

import argparse
import asyncio
import contextlib
import datetime as dt
import sqlite3
from pathlib import Path

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.common import (
    cert_of,
    confirm,
    existing_home,
    say,
    say_json,
    send_command,
    settings_of,
    token_of,
)
from console.cli.options import add_verbs, add_yes
from console.cli.output import output
from core.journal.damage import find_damage
from core.journal.file import SIBLINGS
from core.journal.prune import KEEP_GROUPS, Pruner, Retention
from core.journal.read_only import JournalFile
from core.journal.stats import (
    JournalStats,
    PrunePlan,
    check_rows,
    journal_stats,
    plan_pruning,
)
from core.journal.writer import Journal
from core.runtime.home import Home, Role, running

_VERBS = (
    ("stats", "show events, groups, bytes and where the history starts; the default verb"),
    (
        "prune",
        "show which of the oldest groups would be deleted, ask, and delete them; open groups "
        "stay, rated ones are deleted last",
    ),
    ("check", "read every page, event and message; exit code 1 when something is damaged"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments."""
    parser.set_defaults(handler=journal, verb="stats", json=False)
    for verb, subparser in add_verbs(parser, _VERBS):
        if verb == "stats":
            subparser.add_argument("--json", action="store_true", help="print JSON")
        if verb == "prune":
            _add_prune(subparser)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=float,
        metavar="N",
        help="delete groups older than N days; else journal.keep_days",
    )
    parser.add_argument(
        "--bytes",
        type=int,
        metavar="N",
        help="delete the oldest groups until N bytes are in use; else journal.keep_bytes",
    )
    parser.add_argument(
        "--rated", action="store_true", help="delete rated groups older than --days as well"
    )
    parser.add_argument(
        "--rewrite",
        action="store_true",
        help="then rewrite the file without free pages; needs space for a copy, and no running "
        "proxy",
    )
    add_yes(parser)


def journal(args: argparse.Namespace) -> int:
    """Run the verb of `args.verb`: stats, prune or check.

    Raises:
        AjetError: there is no journal, or the proxy refuses.
    """
    home = existing_home(args)
    if not home.journal.exists():
        raise UsageError("there is no journal in this home yet", str(home.journal))
    verbs = {"stats": _stats, "prune": _prune, "check": _check}
    return verbs[args.verb](args, home)


def _read(path: Path) -> JournalStats:
    with JournalFile(path) as file:
        pinned = file.load_state().engine_runs.pinned_spans()
        with file.reading() as db:
            return journal_stats(db, pinned)


# --- stats --------------------------------------------------------------------------------------


def _stats(args: argparse.Namespace, home: Home) -> int:
    stats, limits = _read(home.journal), settings_of(home).journal
    sizes = {
        end: path.stat().st_size
        for end in ("", *SIBLINGS)
        if (path := Path(f"{home.journal}{end}")).exists()
    }
    on_disk, wal = sum(sizes.values()), sizes.get("-wal", 0)
    if args.json:
        row = msgspec.to_builtins(stats)
        say_json(
            {**row, "file": str(home.journal), "on_disk": on_disk, "wal": wal, **_limits(limits)}
        )
        return 0
    say(f"{home.journal}: {_size(on_disk)} on disk, {_size(stats.used)} in use")
    say(
        f"  including {_size(wal)} of write-ahead log (-wal), which SQLite removes when the proxy "
        "ends"
    )
    say(f"  schema {stats.schema}, {stats.events} events, {stats.messages} messages")
    pinned = f", {stats.pinned} in pinned runs" if stats.pinned else ""
    say(
        f"  {stats.groups} groups: {stats.rated} rated, {stats.open} open{pinned}"
        f"{_group_size(stats)}"
    )
    if stats.groups:
        say(f"  from {_day(stats.oldest)} to {_day(stats.newest)}")
    if stats.pruned_until:
        say(
            f"  the history starts at {_day(stats.pruned_until)}: "
            f"{stats.pruned_groups} older groups were deleted"
        )
    days = f"{limits.keep_days:g} days" if limits.keep_days else "no limit"
    size = _size(limits.keep_bytes) if limits.keep_bytes else "no limit"
    say(f"  journal.keep_days: {days}, journal.keep_bytes: {size}")
    return 0


def _group_size(stats: JournalStats) -> str:
    return f", {_size(stats.used // stats.groups)} per group" if stats.groups else ""


def _limits(limits: msgspec.Struct) -> dict[str, object]:
    return {"limits": msgspec.to_builtins(limits)}


# --- prune --------------------------------------------------------------------------------------


def _prune(args: argparse.Namespace, home: Home) -> int:
    limits = settings_of(home).journal
    days = limits.keep_days if args.days is None else args.days
    size = limits.keep_bytes if args.bytes is None else args.bytes
    if days < 0 or size < 0:
        raise UsageError("a limit is below 0", "journal prune", "0 means no limit")
    keep = Retention(days, size, args.rated)
    with JournalFile(home.journal) as file:
        pinned = file.load_state().engine_runs.pinned_spans()
        with file.reading() as db:
            plan = plan_pruning(db, keep, pinned)
    if plan.nothing and not args.rewrite:
        say("the journal is within its limits: there is nothing to delete")
        return 0
    for line in _plan_lines(plan, keep):
        say(line)
    if not confirm("Prune the journal", "history that cannot be restored", args.yes):
        say("nothing was changed")
        return 1
    if output().dry_run:
        say(output().plan(f"would prune {home.journal}" + " and rewrite it" * args.rewrite))
        return 0
    proxy = running(home, "proxy")
    if proxy is not None:
        if args.rewrite:
            raise UsageError(
                "a proxy runs in this home: the file cannot be rewritten",
                "journal prune --rewrite",
                "Stop it first, or prune without --rewrite",
            )
        values = {"days": days, "bytes": size, "rated": args.rated}
        token = token_of(args, home)
        say(asyncio.run(send_command(proxy.url, token, "journal.prune", values, cert_of(home))))
        return 0
    say(_prune_here(home, keep, args.rewrite))
    return 0


def _plan_lines(plan: PrunePlan, keep: Retention) -> list[str]:
    """Describe what would be deleted."""
    lines = []
    if plan.by_age:
        rated = f", {plan.rated} of them rated" if plan.rated else ""
        lines.append(f"{plan.by_age} groups are older than {keep.days:g} days{rated}")
    if plan.excess:
        lines.append(
            f"{_size(plan.excess)} more than {_size(keep.bytes)} are in use: about "
            f"{plan.share:.0%} of the groups would be deleted, the oldest first, rated ones last; "
            f"open ones, those of pinned runs and the newest {KEEP_GROUPS} stay"
        )
    return lines


def _prune_here(home: Home, keep: Retention, rewrite: bool) -> str:
    """Prune without a proxy; the proxy's role is held so that none starts meanwhile."""
    with Role(Home.open(home.root), "proxy"):
        journal = Journal(home.journal)
        try:
            if journal.error:
                raise journal.failure()
            runs = journal.load_state().engine_runs
            result = Pruner(journal, keep, rest=0.0, pinned=runs.pinned_spans).prune(keep)
        finally:
            journal.close()
        if rewrite:
            _rewrite(home.journal)
    return result.summary


def _rewrite(path: Path) -> None:
    """Rewrite the whole file without free pages.

    Raises:
        AjetError: there is no space for a copy, or another program reads the file.
    """
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("vacuum")
    except sqlite3.Error as error:
        raise AjetError(
            f"the journal cannot be rewritten: {error}",
            str(path),
            "Free space for a copy of it, and stop the programs that read it",
        ) from error


# --- check --------------------------------------------------------------------------------------


def _check(args: argparse.Namespace, home: Home) -> int:
    try:
        damage = find_damage(home.journal)
    except sqlite3.Error as error:
        raise AjetError(f"the journal cannot be read: {error}", str(home.journal)) from error
    if damage:
        say(f"{home.journal}: damaged pages: {damage}")
        say("Restart the proxy: it sets the damaged file aside and keeps what can be read")
        return 1
    with JournalFile(home.journal) as file, file.reading() as db:
        result = check_rows(db)
    if args.json:
        say_json({"file": str(home.journal), **msgspec.to_builtins(result)})
    if result.ok:
        say(f"{home.journal}: ok, {result.events} events")
        return 0
    say(
        f"{home.journal}: {result.events} events are readable, {result.unreadable} are not, "
        f"{result.lost_messages} messages are missing"
    )
    return 1


def _size(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.2f} GB"


def _day(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"
