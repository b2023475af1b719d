"""`journal`: how large it is, prune it, check it; beside a running proxy and without one."""

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
    look_home,
    order,
    say,
    say_json,
    settings_of,
    token_of,
)
from console.cli.options import add_yes
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


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments."""
    parser.set_defaults(handler=journal, verb="stats", json=False)
    verbs = parser.add_subparsers(metavar="VERB", parser_class=type(parser))
    for verb, about in (
        ("stats", "events, groups and bytes, and where the history starts; the same as no verb"),
        (
            "prune",
            "delete the oldest groups, after saying what goes; open ones stay, rated ones go last",
        ),
        ("check", "read every page, event and text; exit code 1 when one is damaged"),
    ):
        one = verbs.add_parser(verb, help=about, description=about[0].upper() + about[1:])
        one.set_defaults(verb=verb)
        one.add_argument(
            "--home", type=Path, metavar="DIR", default=argparse.SUPPRESS, help="the home"
        )
        if verb == "stats":
            one.add_argument("--json", action="store_true", help="print JSON")
        if verb == "prune":
            _add_prune(one)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=float,
        metavar="N",
        help="delete groups that are older; else journal.keep_days",
    )
    parser.add_argument(
        "--bytes",
        type=int,
        metavar="N",
        help="delete the oldest until so many are in use; else journal.keep_bytes",
    )
    parser.add_argument("--rated", action="store_true", help="rated groups that are older, too")
    parser.add_argument(
        "--rewrite",
        action="store_true",
        help="then rewrite the file without free pages; needs room for a copy and no proxy",
    )
    add_yes(parser)


def journal(given: argparse.Namespace) -> int:
    """Show its size, prune or check it; `given.verb` names which.

    Raises:
        AjetError: there is no journal, or the proxy refuses.
    """
    home = look_home(given)
    if not home.journal.exists():
        raise UsageError("there is no journal in this home yet", str(home.journal))
    verbs = {"stats": _stats, "prune": _prune, "check": _check}
    return verbs[given.verb](given, home)


def _read(path: Path) -> JournalStats:
    with JournalFile(path) as file, file.reading() as db:
        return journal_stats(db)


# --- stats --------------------------------------------------------------------------------------


def _stats(given: argparse.Namespace, home: Home) -> int:
    found, limits = _read(home.journal), settings_of(home).journal
    sizes = {
        end: path.stat().st_size
        for end in ("", *SIBLINGS)
        if (path := Path(f"{home.journal}{end}")).exists()
    }
    on_disk, wal = sum(sizes.values()), sizes.get("-wal", 0)
    if given.json:
        row = msgspec.to_builtins(found)
        say_json(
            {**row, "file": str(home.journal), "on_disk": on_disk, "wal": wal, **_limits(limits)}
        )
        return 0
    say(f"{home.journal}: {_size(on_disk)} on disk, {_size(found.used)} in use")
    say(f"  {_size(wal)} of it is the write-ahead log (-wal): SQLite removes it as the proxy ends")
    say(f"  schema {found.schema}, {found.events} events, {found.texts} texts")
    say(f"  {found.groups} groups: {found.rated} rated, {found.open} open{_each(found)}")
    if found.groups:
        say(f"  from {_day(found.oldest)} to {_day(found.newest)}")
    if found.pruned_until:
        say(
            f"  the history starts at {_day(found.pruned_until)}: "
            f"{found.pruned_groups} older groups were deleted"
        )
    days = f"{limits.keep_days:g} days" if limits.keep_days else "no limit"
    size = _size(limits.keep_bytes) if limits.keep_bytes else "no limit"
    say(f"  journal.keep_days: {days}, journal.keep_bytes: {size}")
    if not found.shrinks:
        say(
            "  an older version made the file: free pages are used again, but not given back. "
            "`ajet-console journal prune --rewrite` changes that; end the proxy first"
        )
    return 0


def _each(found: JournalStats) -> str:
    return f", {_size(found.used // found.groups)} a group" if found.groups else ""


def _limits(limits: msgspec.Struct) -> dict[str, object]:
    return {"limits": msgspec.to_builtins(limits)}


# --- prune --------------------------------------------------------------------------------------


def _prune(given: argparse.Namespace, home: Home) -> int:
    limits = settings_of(home).journal
    days = limits.keep_days if given.days is None else given.days
    size = limits.keep_bytes if given.bytes is None else given.bytes
    if days < 0 or size < 0:
        raise UsageError("a limit is below 0", "journal prune", "0 sets none")
    keep = Retention(days, size, given.rated)
    with JournalFile(home.journal) as file, file.reading() as db:
        plan = plan_pruning(db, keep)
    if plan.nothing and not given.rewrite:
        say("the journal is within its limits: nothing is to be deleted")
        return 0
    for line in _words(plan, keep):
        say(line)
    if not confirm("Prune the journal", "history that cannot be brought back", given.yes):
        say("left as it is")
        return 1
    proxy = running(home, "proxy")
    if proxy is not None:
        if given.rewrite:
            raise UsageError(
                "a proxy runs in this home: the file cannot be rewritten",
                "journal prune --rewrite",
                "End it first, or prune without --rewrite",
            )
        args = {"days": days, "bytes": size, "rated": given.rated}
        token = token_of(given, home)
        say(asyncio.run(order(proxy.url, token, "journal.prune", args, cert_of(home))))
        return 0
    say(_prune_here(home, keep, given.rewrite))
    return 0


def _words(plan: PrunePlan, keep: Retention) -> list[str]:
    """What would be deleted."""
    found = []
    if plan.by_age:
        rated = f", {plan.rated} of them rated" if plan.rated else ""
        found.append(f"{plan.by_age} groups are older than {keep.days:g} days{rated}")
    if plan.excess:
        found.append(
            f"{_size(plan.excess)} more than {_size(keep.bytes)} are in use: about "
            f"{plan.share:.0%} of the groups would go, the oldest first, rated ones last; open "
            f"ones and the newest {KEEP_GROUPS} stay"
        )
    return found


def _prune_here(home: Home, keep: Retention, rewrite: bool) -> str:
    """Prune without a proxy, which cannot start meanwhile."""
    with Role(Home.open(home.root), "proxy"):
        journal = Journal(home.journal)
        try:
            if journal.error:
                raise journal.failure()
            done = Pruner(journal, keep, rest=0.0).prune(keep)
        finally:
            journal.close()
        if rewrite:
            _rewrite(home.journal)
    return done.words


def _rewrite(path: Path) -> None:
    """Rewrite the whole file, so that free pages are given back from now on.

    Raises:
        AjetError: there is no room for a copy, or another program reads it.
    """
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("pragma auto_vacuum=incremental")
            db.execute("vacuum")
    except sqlite3.Error as error:
        raise AjetError(
            f"the journal cannot be rewritten: {error}",
            str(path),
            "Make room for a copy of it, and end what reads it",
        ) from error


# --- check --------------------------------------------------------------------------------------


def _check(given: argparse.Namespace, home: Home) -> int:
    try:
        damage = find_damage(home.journal)
    except sqlite3.Error as error:
        raise AjetError(f"the journal cannot be read: {error}", str(home.journal)) from error
    if damage:
        say(f"{home.journal}: damaged pages: {damage}")
        say("Restart the proxy: the start sets the file aside and keeps what can be read")
        return 1
    with JournalFile(home.journal) as file, file.reading() as db:
        found = check_rows(db)
    if found.ok:
        say(f"{home.journal}: ok, {found.events} events")
        return 0
    say(
        f"{home.journal}: {found.events} events read, {found.unreadable} rows or events do not, "
        f"{found.lost_texts} texts are missing"
    )
    return 1


def _size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.2f} GB"


def _day(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"
