"""`journal` and its verbs, as the parser knows them."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Maker = Callable[..., argparse.ArgumentParser]
Adder = Callable[..., None]


def add_journal(commands: Any, command: Maker, yes: Adder) -> None:
    """Add it.

    Args:
        commands: Where commands go.
        command: Makes one.
        yes: Adds `--yes`.
    """
    parser = command(
        commands,
        "journal",
        "console.cli.journal:journal",
        "Show how large the journal is, delete its oldest groups, or check it",
        "journal prune --days 30",
    )
    parser.set_defaults(verb="stats", json=False)
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
            _prune(one, yes)


def _prune(parser: argparse.ArgumentParser, yes: Adder) -> None:
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
    yes(parser)
