"""The mock user, as the parser knows it."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Maker = Callable[..., argparse.ArgumentParser]
Adder = Callable[[argparse.ArgumentParser], None]


def add_mock(commands: Any, command: Maker, reach: Adder) -> None:
    """Add `mock`.

    Args:
        commands: Where commands go.
        command: Makes one.
        reach: Adds the flags that name a proxy.
    """
    parser = command(
        commands,
        "mock",
        "console.cli.mock_run:mock",
        "Replay a dataset through the application, as a user would",
        "mock questions.jsonl --concurrency 3 --passes 2 --seed 7",
    )
    parser.epilog = (
        f"{parser.epilog}\n"
        "         ajet-console mock gsm8k.parquet --split held-out --results held-out.jsonl\n"
        "         ajet-console mock chats.csv --columns query=text --rate 0.5 --updates 10\n"
        "         ajet-console mock --target opencode --dry\n"
        "Started again with the same dataset, it continues where it stopped."
    )
    _what(parser)
    _how(parser)
    _user(parser)
    reach(parser)


def _what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset",
        nargs="?",
        metavar="DATASET",
        help="JSONL, JSON, CSV or Parquet file or Hugging Face folder, here or in the home's "
        "datasets folder; the shipped questions when left out",
    )
    parser.add_argument(
        "--columns",
        metavar="PART=COLUMN,...",
        help="columns with other names than usual: query=text,reference=label; parts are query, "
        "reference, id, system, messages, turns, persona, goal, opening, weight, metadata",
    )
    parser.add_argument("--passes", type=int, metavar="N", help="how often each row is asked")
    parser.add_argument("--seed", type=int, metavar="N", help="shuffle each pass by this seed")
    parser.add_argument(
        "--split", choices=("train", "held-out"), help="ask only this side of the dataset"
    )
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="SHARE",
        help="how much is held out, by a hash of the query (0.1)",
    )
    parser.add_argument(
        "--target",
        dest="target_file",
        metavar="FILE",
        help="the application to ask: a target file, or the name of one that comes with the "
        "program (see docs/guide/mock-user.md)",
    )
    parser.add_argument(
        "--dry",
        action="store_true",
        help="only try the target with one row that is not trained on",
    )
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="any OpenAI-compatible address; else the proxy that runs in the home",
    )
    parser.add_argument("--api-key", metavar="KEY", help="key for that address")
    parser.add_argument("--model", default="ajet", metavar="NAME", help="model to ask for")


def _user(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "users", "a language model that plays the user of rows with a persona"
    )
    group.add_argument("--user-url", metavar="URL", help="OpenAI-compatible address of it")
    group.add_argument("--user-model", metavar="NAME", help="its name there")
    group.add_argument(
        "--user-key-env", metavar="NAME", help="environment variable that holds its key"
    )
    group.add_argument("--user-temperature", type=float, metavar="T", help="0 to 2 (1)")
    group.add_argument(
        "--user-turns", type=int, metavar="N", help="messages of the user at most (6)"
    )
    group.add_argument(
        "--user-stop", metavar="TEXT", help="what it writes when the user is done ([END])"
    )
    group.add_argument(
        "--user-seed", type=int, metavar="N", help="seed of its messages; that of --seed if given"
    )


def _how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--concurrency", type=int, metavar="N", help="requests in flight")
    parser.add_argument(
        "--pace", type=float, metavar="SECONDS", help="wait of one worker between two requests"
    )
    parser.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="open loop: R requests a second at random times, however many are in flight",
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long one answer may take"
    )
    parser.add_argument(
        "--pause-sync", action="store_true", help="ask nothing while no engine takes work"
    )
    parser.add_argument(
        "--updates", type=int, metavar="N", help="stop after so many policy updates"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="add one JSON line a row: answer, group, reward, seconds, error",
    )
    parser.add_argument(
        "--results-wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long a row's line waits for its reward (60)",
    )
    parser.add_argument("--restart", action="store_true", help="start over instead of continuing")
