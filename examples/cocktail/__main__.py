"""Three clients with three kinds of tasks share every batch 40/30/30; then the shares change.

    python -m examples.cocktail

At the end the mix is measured, before the change and after it, and must lie within 5 points.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from examples.clients import read_diary, start_client
from examples.cocktail.kinds import KINDS
from examples.stage import Stage, StageError, on_stage, say
from examples.swarming import engine_of, flags, left_claimed, pace_of, reach, started, until

BATCH, REPEATS = 10, 4
FIRST = {"maths": 0.4, "code": 0.3, "terminal": 0.3}
THEN = {"maths": 0.2, "code": 0.3, "terminal": 0.5}
POINTS = 5.0
"""Maximum distance of the measured mix from the shares."""
IDLE = 15.0
"""Idle seconds after which our own engine takes an episode back."""


def main(argv: list[str] | None = None) -> int:
    """Run the example; return the exit code."""
    parser = flags("cocktail", 12, least=4)
    parser.add_argument(
        "--no-throttle", dest="throttle", action="store_false", help="see what comes without shares"
    )
    args = parser.parse_args(argv)
    return on_stage("cocktail", args.keep, lambda stage: _run(stage, args))


def _run(stage: Stage, args: argparse.Namespace) -> None:
    pace = pace_of(args, IDLE)
    url = engine_of(stage)
    mix, diary = stage.folder / "mix.json", stage.folder / "diary.jsonl"
    diary.unlink(missing_ok=True)  # of an earlier run in the same folder

    def done(step: int) -> None:
        lines = [line for line in read_diary(diary) if line["step"] == step]
        reward = mean(line["reward"] for line in lines or [{"reward": 0.0}])
        say(f"step {step}: {_shown(_mix(lines))}  mean reward {reward:.2f}")

    with started(url, "cocktail", BATCH, REPEATS, pace) as client:
        first = client.get_global_step()
        last = first + args.updates - 1
        half = first + args.updates // 2
        _write(mix, FIRST)
        more = [] if args.throttle else ["--no-throttle"]
        for kind in KINDS:
            own = ["--kind", kind, "--mix", str(mix), *more]
            start_client(stage, kind, "cocktail", url, (BATCH, REPEATS, last), pace, *own)
        reach(client, half, pace.patience, done)
        _write(mix, THEN)
        say(f"-- shares are now {_shown({k: 100 * v for k, v in THEN.items()})}")
        reach(client, last + 1, pace.patience, done)
        until("the last claims are given back", pace.idle + 45, lambda: not left_claimed(client))
    ended = read_diary(diary)
    # What was begun under the old shares is in the step of the change: it is left out.
    before = _report("before", [line for line in ended if line["step"] < half], FIRST)
    after = _report("after", [line for line in ended if half < line["step"] <= last], THEN)
    say("claims left 0")
    if args.throttle and max(before, after) > POINTS:
        raise StageError(f"the mix is {max(before, after):.1f} points off")


def _write(path: Path, shares: Mapping[str, float]) -> None:
    """Replace the file atomically, since clients read it at any time."""
    path.with_suffix(".new").write_text(json.dumps(shares), "utf-8")
    os.replace(path.with_suffix(".new"), path)


def _mix(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the share of each kind among episodes, in percent."""
    count = Counter(line["kind"] for line in lines)
    return {kind: 100 * count[kind] / max(count.total(), 1) for kind in KINDS}


def _shown(mix: Mapping[str, float]) -> str:
    return "  ".join(f"{kind} {share:.0f} %" for kind, share in mix.items())


def _report(when: str, lines: Sequence[Mapping[str, Any]], shares: Mapping[str, float]) -> float:
    """Print the result of a part of the run; return the largest deviation in points."""
    measured = _mix(lines)
    off = max(abs(measured[kind] - 100 * shares[kind]) for kind in KINDS)
    say(f"{when}: {_shown(measured)} of {len(lines)} episodes, at most {off:.1f} points off")
    return off


if __name__ == "__main__":
    sys.exit(main())
