"""`progress pair` and `progress vote`: compare answers of before and now without knowing which."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import plain
from console.cli.commands import EXIT
from console.cli.common import connected, existing_home, say, say_json, say_result
from console.cli.options import PROXY, SERVER, Args, argument, flag, option, takes
from console.cli.output import output
from console.cli.output.dry_run import order
from console.session.rater_name import saved_name
from core.commands import COMMANDS, validate

_CHOICES = next(arg.choices for arg in COMMANDS["progress.vote"].args if arg.name == "choice")


@takes(
    PROXY,
    SERVER,
    option("--rater", "NAME", "name of the rater; else that of the home"),
    flag(
        "--newest",
        "compare the newest look, though an earlier one has ratings; the counts begin again",
    ),
    notes=(EXIT,),
)
def pair(args: Args) -> int:
    """Print the open pair of a rater.

    Raises:
        AjetError: no proxy runs, or there is no pair to rate.
    """
    values = {"server": args.server, "rater": _rater(args), "newest": args.newest}
    message, data = asyncio.run(_send(args, "progress.pair", values))
    if output().dry_run:
        say(message)
        return 0
    if args.json:
        say_json(data)
        return 0
    say(f"pair {data['pair_id']}, {_steps(data)}, {data['ratings']} rated")
    for title in ("prompt", "left", "right"):
        say(f"\n{title.upper()}\n{plain(data[title]).strip() or '(empty)'}")
    say(f"\najet-console progress vote {data['pair_id']} left|right|tie|skip")
    return 0


@takes(
    PROXY,
    argument("pair_id", "id of the pair, from `progress pair`", metavar="PAIR"),
    argument("choice", "the better answer", choices=_CHOICES),
    SERVER,
    option("--rater", "NAME", "name of the rater; else that of the home"),
    notes=(EXIT,),
)
def vote(args: Args) -> int:
    """Send a vote; print which answer was which and the ratings so far.

    Raises:
        AjetError: no proxy runs, or the pair is not open.
    """
    values = {"pair_id": args.pair_id, "choice": args.choice, "server": args.server}
    values["rater"] = _rater(args)
    message, data = asyncio.run(_send(args, "progress.vote", values))
    if output().dry_run:
        say(message)
        return 0
    return say_result(args, data, (f"left was {data['left']}, right was {data['right']}", message))


def _rater(args: Args) -> str:
    return args.rater if args.rater is not None else saved_name(existing_home(args))


async def _send(args: Args, name: str, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return message and data of a command."""
    checked = validate(name, values)
    async with connected(args) as client:
        reply = await order(client, name, checked)
    return reply.message, reply.result


def _steps(data: Mapping[str, Any]) -> str:
    """Return the compared steps: `step 12 against step 1; the newest look is of step 30`."""
    now, before, newest = (
        "an unknown step" if data[name] is None else f"step {data[name]}"
        for name in ("step", "baseline_step", "newest_step")
    )
    later = f"; the newest look is of {newest}" if newest != now else ""
    return f"{now} against {before}{later}"
