"""The command `setup`: ask, write, show what to paste, send one request."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.cli.common import existing_home
from console.cli.options import add_json, add_note
from console.cli.setup.catalog import BY_ID
from console.cli.setup.run import Setup


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=setup)
    add_note(
        parser,
        "         ajet-console setup rating=hold          change one answer",
        "         ajet-console setup --answers FILE --json --no-request",
        "On a terminal it asks for what is missing; elsewhere each question needs an answer.",
        f"Questions: {', '.join(BY_ID)}. See docs/guide/setup.md.",
    )
    parser.add_argument("answer", nargs="*", metavar="KEY=VALUE", help="the answer to a question")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="file with answers, a line `KEY: VALUE` each"
    )
    parser.add_argument("--no-request", action="store_true", help="write the settings only")
    parser.add_argument(
        "--no-check", action="store_true", help="do not ask servers and judges whether they answer"
    )
    parser.add_argument(
        "--start", action="store_true", help="start an AgentJet server that is OFFLINE with its job"
    )
    parser.add_argument(
        "--restart", action="store_true", help="restart a proxy that runs with other settings"
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--leave", action="store_true", help="leave the proxy and the engine running")
    end.add_argument("--stop", action="store_true", help="stop them without a question")
    add_json(parser, "print the result as JSON and ask nothing")


def setup(args: argparse.Namespace) -> int:
    """Run the setup.

    Raises:
        UsageError: an answer is unknown, refused, or missing where nobody can be asked.
        AjetError: the settings cannot be read or written.
    """
    given = _given_answers(args)
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (args.json or args.dry_run)
    home = existing_home(args)
    with _signals_interrupt() as received, asyncio.Runner() as runner:
        one = Setup(args, home, runner.run, asks)
        try:
            return one.run(given)
        except (KeyboardInterrupt, BrokenPipeError) as end:
            where = f"in {home.config}" if one.written else "as they were"
            with contextlib.suppress(OSError):  # the terminal may be closed
                sys.stderr.write(f"\nThe setup was ended. The settings are {where}\n")
            if isinstance(end, BrokenPipeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 1
            if received:
                raise SystemExit(128 + received[0]) from end
            raise
        finally:
            one.close()


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP interrupt as Ctrl+C does: what was started is stopped.

    Yields:
        The numbers of these signals, in the order of their arrival.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _given_answers(args: argparse.Namespace) -> dict[str, str]:
    """Return the answers of the file and of the command line, by the id of their question.

    Raises:
        UsageError: a question is unknown, or an argument is not KEY=VALUE.
    """
    answers: dict[str, str] = {}
    if args.answers is not None:
        from core.settings.file import parse_settings

        try:
            text = args.answers.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the answers cannot be read: {error}", str(args.answers)) from error
        values, source = parse_settings(text, args.answers)
        for key, value in values.items():
            if isinstance(value, Mapping | list):
                raise UsageError(f"`{key}` is not a single value", source.place(key))
            answers[_known(str(key), source.place(str(key)))] = "" if value is None else str(value)
    for pair in args.answer:
        key, sign, value = pair.partition("=")
        if not sign:
            raise UsageError(f"`{one_line(pair, 60)}` is not KEY=VALUE", "setup")
        answers[_known(key, "setup")] = value.strip()
    return answers


def _known(key: str, where: str) -> str:
    if key not in BY_ID:
        raise UsageError(
            f"there is no question `{one_line(key, 40)}`", where, known_names(key, BY_ID)
        )
    return key
