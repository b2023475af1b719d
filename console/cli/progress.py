"""`progress`: whether the policy is better than its baseline, as text, JSON and exit code."""

import shlex
from typing import Any

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.cli.common import AT_END, existing_home, state_now
from console.cli.options import PROXY, SERVER, Args, takes
from console.cli.output import say_result
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
from core.events import LookEnded
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
