"""`journal`: show its size, prune it or check it, with or without a running proxy."""

import asyncio
import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
from click import IntRange

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.common import existing_home, send_command, settings_of
from console.cli.options import YES, Args, Range, flag, option, takes
from console.cli.output import agree, say, say_json, say_result, would
from core.journal.damage import find_damage
from core.journal.file import SIBLINGS
from core.journal.prune import KEEP_GROUPS, Pruner, Retention
from core.journal.read_only import JournalFile
from core.journal.stats import JournalStats, PrunePlan, check_rows, journal_stats, plan_pruning
from core.journal.writer import Journal
from core.runtime.home import Home, Role, running
from core.settings import JournalSettings


def _home(args: Args) -> Home:
    """Return the home.

    Raises:
        UsageError: it has no journal.
    """
    home = existing_home(args)
    if not home.journal.exists():
        raise UsageError("there is no journal in this home yet", str(home.journal))
    return home


# --- stats --------------------------------------------------------------------------------------


@takes()
def stats(args: Args) -> int:
    """Show the size of the journal."""
    home = _home(args)
    file = JournalFile(home.journal)
    pinned = file.load_state().engine_runs.pinned_spans()
    with file.reading() as db:
        known = journal_stats(db, pinned)
    limits = settings_of(home).journal
    paths = {end: Path(f"{home.journal}{end}") for end in ("", *SIBLINGS)}
    sizes = {end: path.stat().st_size for end, path in paths.items() if path.exists()}
    on_disk, wal = sum(sizes.values()), sizes.get("-wal", 0)
    data = {
        **msgspec.to_builtins(known),
        "file": str(home.journal),
        "on_disk": on_disk,
        "wal": wal,
        "limits": msgspec.to_builtins(limits),
    }
    return say_result(args, data, _stats_lines(home, known, limits, on_disk, wal))


def _stats_lines(
    home: Home, known: JournalStats, limits: JournalSettings, on_disk: int, wal: int
) -> Iterator[str]:
    yield f"{home.journal}: {_size(on_disk)} on disk, {_size(known.used)} in use"
    removed = "which SQLite removes when the proxy ends"
    yield f"  including {_size(wal)} of write-ahead log (-wal), {removed}"
    yield f"  schema {known.schema}, {known.events} events, {known.messages} messages"
    pinned = f", {known.pinned} in pinned runs" if known.pinned else ""
    each = f", {_size(known.used // known.groups)} per group" if known.groups else ""
    yield f"  {known.groups} groups: {known.rated} rated, {known.open} open{pinned}{each}"
    if known.groups:
        yield f"  from {_day(known.oldest)} to {_day(known.newest)}"
    if known.pruned_until:
        deleted = f"{known.pruned_groups} older groups were deleted"
        yield f"  the history starts at {_day(known.pruned_until)}: {deleted}"
    days = f"{limits.keep_days:g} days" if limits.keep_days else "no limit"
    size = _size(limits.keep_bytes) if limits.keep_bytes else "no limit"
    yield f"  journal.keep_days: {days}, journal.keep_bytes: {size}"


# --- prune --------------------------------------------------------------------------------------


@takes(
    option("--days N", "delete groups older than N days; else journal.keep_days", type=Range(0)),
    option(
        "--bytes N",
        "delete the oldest groups until N bytes are in use; else journal.keep_bytes",
        type=IntRange(0),
    ),
    flag("--rated", "delete rated groups older than --days as well"),
    YES,
)
def prune(args: Args) -> int:
    """Delete the oldest groups after a question."""
    home = _home(args)
    limits = settings_of(home).journal
    days = limits.keep_days if args.days is None else args.days
    size = limits.keep_bytes if args.bytes is None else args.bytes
    keep = Retention(days, size, args.rated)
    file = JournalFile(home.journal)
    state = file.load_state()
    with file.reading() as db:
        pinned = state.engine_runs.pinned_spans()
        plan = plan_pruning(db, keep, pinned, state.inbox_ids())
    if plan.nothing:
        say("the journal is within its limits: there is nothing to delete")
        return 0
    for line in _plan_lines(plan, keep):
        say(line)
    agree("Prune the journal", ["It loses history that cannot be restored."], args.yes)
    if would(f"prune {home.journal}"):
        return 0
    if (proxy := running(home, "proxy")) is not None:
        values = {"days": days, "bytes": size, "rated": args.rated}
        say(asyncio.run(send_command(args, "journal.prune", values, proxy.url)).message)
    else:
        say(_prune_here(home, keep))
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
            f"open ones, those of pinned runs and the inbox, the newest {KEEP_GROUPS} stay"
        )
    return lines


def _prune_here(home: Home, keep: Retention) -> str:
    """Prune without a proxy; the proxy's role is held so that none starts meanwhile."""
    with Role(Home.open(home.root), "proxy"):
        journal = Journal(home.journal)
        try:
            if journal.error:
                raise journal.failure()
            state = journal.load_state()
            pinned, inbox = state.engine_runs.pinned_spans, state.inbox_ids
            result = Pruner(journal, keep, rest=0.0, pinned=pinned, inbox=inbox).prune(keep)
        finally:
            journal.close()
    return result.summary


# --- check --------------------------------------------------------------------------------------


@takes()
def check(args: Args) -> int:
    """Read the whole journal."""
    home = _home(args)
    try:
        damage = find_damage(home.journal)
    except sqlite3.Error as error:
        raise AjetError(f"the journal cannot be read: {error}", str(home.journal)) from error
    if damage:
        say(f"{home.journal}: damaged pages: {damage}")
        say("Restart the proxy: it sets the damaged file aside and keeps what can be read")
        return 1
    file = JournalFile(home.journal)
    with file.reading() as db:
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
