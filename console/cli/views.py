"""What only looks: `watch`, `replay` and `doctor`, as the parser knows them."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.cli.flags import THEMES

Maker = Callable[..., argparse.ArgumentParser]
Adder = Callable[[argparse.ArgumentParser], None]


def add_looks(commands: Any, command: Maker, reach: Adder) -> None:
    """Add the three.

    Args:
        commands: Where commands go.
        command: Makes one.
        reach: Adds the flags that name a proxy.
    """
    _watch(commands, command, reach)
    _replay(commands, command)
    _doctor(commands, command, reach)


def _watch(commands: Any, command: Maker, reach: Adder) -> None:
    parser = command(
        commands,
        "watch",
        "console.cli.watch:watch",
        "Follow what happens, one line an event",
        "watch --json --filter dead:yes",
    )
    parser.epilog = (
        f"{parser.epilog}\n"
        "         ajet-console watch --until engine_changed:ROLLING --timeout 60\n"
        "Exit code: 0 seen or nobody reads on, 1 no proxy or --timeout has passed, 2 wrong use, "
        "130 interrupted."
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="JSON lines: the state in short first, then each event as the journal has it",
    )
    parser.add_argument(
        "--full", action="store_true", help="with --json: the whole state first, all groups in it"
    )
    parser.add_argument(
        "--filter",
        metavar="FILTER",
        help="only groups that fit, in the words of the console's filter line",
    )
    parser.add_argument(
        "--kind", action="append", metavar="EVENT", help="only events of this kind; repeatable"
    )
    parser.add_argument(
        "--until",
        metavar="EVENT[:WORD]",
        help="end after the first event of this kind (of which a field is WORD)",
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="give up after so many seconds")
    parser.add_argument(
        "--after",
        type=int,
        metavar="SEQ",
        help="continue after this event, without a snapshot first",
    )
    reach(parser)


def _replay(commands: Any, command: Maker) -> None:
    parser = command(
        commands,
        "replay",
        "console.cli.replay:replay",
        "Show a journal on the console's screens, with no engine and no proxy; nothing is written",
        "replay journal.db --speed 10",
    )
    parser.epilog = (
        f"{parser.epilog}\n"
        "Keys: , pause  . step  < > slower, faster  Ctrl+B from the beginning  Ctrl+E to the end."
    )
    parser.add_argument(
        "journal",
        nargs="?",
        metavar="JOURNAL",
        help="a journal file, a home, or a run of this home's journal; this home's when left out",
    )
    parser.add_argument("--run", metavar="RUN", help="only up to this run's end; `last` is one")
    parser.add_argument(
        "--speed",
        type=float,
        metavar="X",
        help="play it X times as fast as recorded; without it the end is shown at once",
    )
    parser.add_argument("--screen", metavar="NAME", help="the screen to begin with")
    parser.add_argument("--theme", choices=THEMES, help="colours")
    parser.add_argument("--list", action="store_true", help="list the runs in it")
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def _doctor(commands: Any, command: Maker, reach: Adder) -> None:
    parser = command(
        commands,
        "doctor",
        "console.cli.doctor:doctor",
        "Check Python, terminal, ports, home, servers, keys and hooks, and say what to do",
        "doctor --swarm-url http://gpu-box:10086",
    )
    parser.epilog = (
        f"{parser.epilog}\n"
        "Exit code: 0 nothing fails (warnings are none), 1 something fails, 2 wrong use. "
        "Nothing is changed."
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument(
        "--swarm-url",
        action="append",
        metavar="[NAME=]URL",
        help="check this swarm server; else those of the settings",
    )
    parser.add_argument("--hooks", type=Path, metavar="DIR", help="check this reward function")
    parser.add_argument("--host", metavar="ADDRESS", help="where the fake vLLM would listen")
    parser.add_argument("--port", type=int, metavar="N", help="on which port")
    reach(parser)
