"""`progress`: whether the policy is better than its baseline, blind pairs, probe sets."""

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from click import IntRange

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line, plain, plural
from console.cli.commands import EXIT, rater_of
from console.cli.common import AT_END, existing_home, send_command, state_now
from console.cli.options import (
    COLUMNS,
    PROXY,
    SERVER,
    Args,
    Range,
    argument,
    flag,
    option,
    takes,
)
from console.cli.output import output, say, say_result, would
from console.json_view import progress_view
from console.screens.progress.model import (
    Standing,
    part_weights,
    progress_server,
    ratings_data,
    restores,
    standing,
)
from console.screens.progress.text import PART_TABLE, detail_lines, parts_lines, verdict_lines
from console.text.lines import Line, line_text
from console.text.values import fields_of
from core.commands import COMMANDS
from core.events import LookEnded, ProbePrompt
from core.state import Progress, State

EXIT_CODES = {"better": 0, "unknown": 3, "worse": 4}
_WIDTH = 100
"""Width of a text line, in cells."""


@takes(
    SERVER,
    PROXY,
    notes=(
        "Exit code: 0 better, 3 not known (also: no probe set, no look yet), 4 worse, 1 nothing "
        "can be read, 2 wrong use. It is about the reward: right answers and parts of weight 0 "
        "that are worse stand in the sentence after `worse:`. Without a running proxy it reads "
        "the journal of the home.",
    ),
)
def progress(args: Args) -> int:
    """Print the verdict about a server's policy.

    Returns:
        0 better, 3 not known, 4 worse.

    Raises:
        AjetError: no proxy answers and there is no journal, or the server is unknown.
    """
    home = existing_home(args)
    state, live = state_now(args, home)
    if not live:  # a look that was running at the end of the journal is not running now
        for measured in state.progress.values():
            measured.running = None
    name = _server(state, args.server)
    present, known = standing(state, name), state.progress.get(name)
    data = _data(name, present, known, "proxy" if live else "journal")
    lines = map(line_text, _lines(state, name, present, known))
    say_result(args, data, [*lines, *([] if live else [AT_END])])
    return EXIT_CODES[present.outcome]


def _server(state: State, named: str | None) -> str:
    names = {*state.servers, *state.progress}
    if named is None:
        return progress_server(state)
    if named not in names:
        todo = known_names(named, sorted(names))
        raise UsageError("there is no such server", f"--server {one_line(named, 40)}", todo)
    return named


def _lines(state: State, name: str, present: Standing, known: Progress | None) -> list[Line]:
    lines = verdict_lines(present, _WIDTH)
    if step := restores(present, known):
        first = next(iter(state.servers), name)  # which the command restores without `--server`
        server = f" --server {shlex.quote(one_line(name, 60))}" if name != first else ""
        lines.append(((f"  `ajet-console progress rewind{server}` restores {step}", ""),))
    lines += detail_lines(present, known, _WIDTH)
    if present.running:
        lines.append((("  ", ""), (present.running, "")))
    if present.look is not None and present.look.parts:
        weights = part_weights(state, present.look)
        lines += [(), PART_TABLE.head(_WIDTH), *parts_lines(present.look, _WIDTH, weights)]
    return lines


def _data(name: str, present: Standing, known: Progress | None, source: str) -> dict[str, Any]:
    look, baseline = present.look, present.baseline
    shown = look or baseline
    return {
        "server": name,
        "source": source,
        **progress_view(present),
        "baseline_step": getattr(baseline, "step", None),
        "mean": getattr(look, "mean", None),
        "baseline_mean": getattr(baseline, "mean", None),
        **fields_of(shown, "mode reward file"),
        **fields_of(look and look.verdict, "reference more prompts samples look"),
        "against_best": _against_best(look),
        "probe_set": _probe_set(known),
        "left_out": list(shown.left_out) if shown is not None else [],
        "parts": [msgspec.to_builtins(part) for part in look.parts] if look is not None else [],
        "pairs": ratings_data(known),
        "best_step": known.best.step if known is not None and known.best is not None else None,
        "paused": known.paused if known is not None else "",
        "running": msgspec.to_builtins(known.running) if known is not None else None,
    }


def _probe_set(known: Progress | None) -> dict[str, Any] | None:
    probe_set = known.probe_set if known is not None else None
    if probe_set is None:
        return None
    fields = fields_of(probe_set, "source version error enabled")
    return {**fields, "prompts": len(probe_set.prompts)}


def _against_best(look: LookEnded | None) -> dict[str, Any] | None:
    """Return the look against the best verified one; None where these were not compared."""
    compared = look.against_best if look is not None else None
    if compared is None:
        return None
    data: dict[str, Any] = msgspec.to_builtins(compared)
    return {**data, "below": compared.below}


# --- blind pairs ---------------------------------------------------------------------------------

_CHOICES = next(arg.choices for arg in COMMANDS["progress.vote"].args if arg.name == "choice")
_RATER = option("--rater NAME", "name of the rater; else that of the home")


@takes(
    PROXY,
    SERVER,
    _RATER,
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
    values = {"server": args.server, "rater": rater_of(args), "newest": args.newest}
    reply = asyncio.run(send_command(args, "progress.pair", values))
    if output().dry_run:
        say(reply.message)
        return 0
    return say_result(args, reply.result, _pair_lines(reply.result))


def _pair_lines(data: Mapping[str, Any]) -> Iterator[str]:
    now, before, newest = (
        "an unknown step" if data[name] is None else f"step {data[name]}"
        for name in ("step", "baseline_step", "newest_step")
    )
    later = f"; the newest look is of {newest}" if newest != now else ""
    yield f"pair {data['pair_id']}, {now} against {before}{later}, {data['ratings']} rated"
    for title in ("prompt", "left", "right"):
        yield f"\n{title.upper()}\n{plain(data[title]).strip() or '(empty)'}"
    yield f"\najet-console progress vote {data['pair_id']} left|right|tie|skip"


@takes(
    PROXY,
    argument("pair_id", "id of the pair, from `progress pair`", metavar="PAIR"),
    argument("choice", "the better answer", choices=_CHOICES),
    SERVER,
    _RATER,
    notes=(EXIT,),
)
def vote(args: Args) -> int:
    """Send a vote; print which answer was which and the ratings so far.

    Raises:
        AjetError: no proxy runs, or the pair is not open.
    """
    values = {"pair_id": args.pair_id, "choice": args.choice, "server": args.server}
    values["rater"] = rater_of(args)
    reply = asyncio.run(send_command(args, "progress.vote", values))
    if output().dry_run:
        say(reply.message)
        return 0
    data = reply.result
    lines = (f"left was {data['left']}, right was {data['right']}", reply.message)
    return say_result(args, data, lines)


# --- probe set -----------------------------------------------------------------------------------

MOST = 64
"""Prompts of the file unless `--most` gives another number."""
HELD_OUT = 0.1
"""Share of the rows on the held-out side, as of `run mock --split`."""
_SHARE, _COUNT = Range(0, 1, min_open=True), IntRange(1)


@takes(
    argument("dataset", "file or folder", type=Path),
    option("--out FILE", "file to write", type=Path, required=True),
    COLUMNS,
    option("--held-out SHARE", f"share ({HELD_OUT:g})", type=_SHARE, default=HELD_OUT),
    option("--most N", f"maximum number of prompts ({MOST})", type=_COUNT, default=MOST),
    notes=(
        "The held-out side is that of `run mock --split`: train with `run mock DATASET --split "
        "train`, and set `probe.file` to the file. Rows with several user messages, a persona, "
        "tools or images are left out.",
    ),
)
def probe_set(args: Args) -> int:
    """Write the file.

    Raises:
        AjetError: the dataset cannot be read, has no held-out row, or the file exists.
    """
    from proxy.evaluation.probe_set import write_prompts
    from proxy.held_out import key_of

    if args.out.exists():
        raise UsageError("the file exists", str(args.out), "Name another, or delete it")
    prompts: dict[str, ProbePrompt] = {}
    for prompt in _held_out(args):
        prompts.setdefault(key_of(prompt), prompt)
        if len(prompts) == args.most:
            break
    if not prompts:
        todo = "Give a larger share with --held-out"
        raise UsageError("no usable row is held out", str(args.dataset), todo)
    count = plural(len(prompts), "prompt")
    if not would(f"write {count} to {args.out}"):
        write_prompts(args.out, list(prompts.values()))
        say(f"{count} written to {args.out}: set probe.file to it, and train with --split train")
    return 0


def _held_out(args: Args) -> Iterator[ProbePrompt]:
    """Yield the prompts of the rows of the held-out side, in a fixed order."""
    from mock.dataset import open_dataset
    from mock.dataset.columns import read_columns
    from mock.dataset.rows import Row, side_of

    with open_dataset(args.dataset.expanduser(), read_columns(args.columns or "")) as dataset:
        while dataset.records.scan():
            pass
        for position in dataset.order("probe set", seed=0):
            row = dataset.row(position)
            if not isinstance(row, Row) or row.then or row.persona or row.tools:
                continue
            if row.messages[-1] != {"role": "user", "content": row.query}:
                continue  # an image, or a conversation that awaits the answer to a tool's result
            if side_of(row, args.held_out) == "held-out":
                yield ProbePrompt(
                    id=row.row_id,
                    prompt=row.query,
                    before=row.messages[:-1],
                    reference=row.reference or "",
                )
