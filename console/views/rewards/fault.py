"""The last fault of the rewards: what, where, since when, and the place to fix it."""

import re
from dataclasses import dataclass
from pathlib import Path

from ajet_swarm.common.text import ago, one_line, plural
from console.text.format import clock
from console.text.lines import Line, fit
from console.text.wrap import wrapped
from core.state import RewardFault, State

HOOK = "on_compute_relative_reward.py"
"""The file of a hook folder that computes the rewards."""
SAME_FAULT_SECONDS = 2.0
"""Most seconds between groups that failed for the same cause."""
_FRAME = re.compile(r'^[^\S\n]*File "([^"\n]{1,4000})", line (\d{1,9})', re.MULTILINE)


def source_kind(source: str) -> str:
    """Return `built-in`, `hooks`, `file` or nothing."""
    if source.endswith((".yaml", ".yml")):
        return "file"
    return {"": "", "builtin": "built-in"}.get(source, "hooks")


@dataclass(frozen=True, slots=True)
class Fault:
    """The last error of the rewards."""

    what: str
    """`did not load`, `ended`, or the object it failed on."""
    cause: str
    traceback: str
    file: str
    line: int
    at: float
    resolution: str
    """How it was fixed; empty while it lasts."""
    group_id: str = ""
    """The group it failed on; empty when it did not load."""


def last_fault(state: State) -> Fault | None:
    """Return the present fault, else the newest of those that were fixed; None without any."""
    loading = state.rewards.fault
    fault = _group_fault(state)
    if loading is None:
        return fault
    resolution = f"fixed at {clock(loading.mended_at)}" if loading.mended_at is not None else ""
    if fault is not None and resolution and fault.at > loading.at:
        return fault
    return Fault(
        _what(loading),
        loading.cause,
        loading.traceback,
        loading.file,
        loading.line,
        loading.at,
        resolution,
    )


def _what(loading: RewardFault) -> str:
    if not loading.judge:
        return "ended" if loading.fell else "did not load"
    trouble = "not reached yet" if loading.level == "warning" else "in trouble"
    return f"judge {one_line(loading.judge, 40)} {trouble}"


def _group_fault(state: State) -> Fault | None:
    """Return the newest group the rewards failed on, and how many were scored since.

    Among groups that failed within `SAME_FAULT_SECONDS` of it, one with a known place is preferred,
    because only one of several groups may record the place.
    """
    since = 0
    fault: Fault | None = None
    tried = [group for group in state.groups.values() if group.scored_at is not None]
    for group in sorted(tried, key=lambda group: group.scored_at or 0.0, reverse=True):
        assert group.scored_at is not None
        if fault is not None and (
            group.scored_at < fault.at - SAME_FAULT_SECONDS or not group.abstained
        ):
            break
        if not group.abstained:
            since += 1
            continue
        file, line = group.fault_file, group.fault_line
        if not file:
            file, line = place_of(group.traceback)
        if fault is None or line:
            over = since and not group.open
            resolution = f"{plural(since, 'group')} scored since" if over else ""
            at, cause = group.scored_at, group.abstained
            waits = ", which waits for you" if group.rateable else ""
            what = f"failed on a group{waits}"
            fault = Fault(what, cause, group.traceback, file, line, at, resolution, group.group_id)
        if line:
            break
    return fault


def place_of(traceback: str) -> tuple[str, int]:
    """Return file and line of the innermost frame of a traceback; an empty name without one."""
    frames = _FRAME.findall(traceback)
    return (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)


def place_to_open(state: State) -> tuple[str, int]:
    """Return the place for the editor: that of the fault, else the hook or file; else empty."""
    fault = last_fault(state)
    if fault is not None and fault.file and fault.line:
        return fault.file, fault.line
    source = state.rewards.source
    if source_kind(source) == "file":
        return source, 1
    return (str(Path(source).expanduser() / HOOK), 1) if source_kind(source) == "hooks" else ("", 0)


def fault_lines(fault: Fault | None, now: float, width: int, unfolded: bool) -> list[Line]:
    """Return cause, place and traceback of the fault; empty without one."""
    if fault is None:
        return []
    standing = not fault.resolution
    sign, tone = ("✖", "bold $engine-lost") if standing else ("✔", "$reward-up")
    age = ago(now - fault.at)
    when = age if age == "just now" else f"{clock(fault.at)}, {age}"
    label = f"{fault.what} " if standing else f"{fault.resolution} "
    head: Line = (
        ("LAST FAULT  ", "bold $heading"),
        (f"{sign} {label}", tone),
        (when if standing else f" {fault.what} {when}", "$muted"),
    )
    lines: list[Line] = [head]
    most = 6 if unfolded else 2
    cause = wrapped(one_line(fault.cause, 1_000), width - 2)
    if len(cause) > most:
        cause = [*cause[: most - 1], fit(" ".join(cause[most - 1 :]), width - 2)]
    lines += [((f"  {text}", "bold" if standing else ""),) for text in cause]
    lines += _trace(fault, width, unfolded)
    return lines


def _trace(fault: Fault, width: int, unfolded: bool) -> list[Line]:
    where = f"{one_line(Path(fault.file).name, 60)}:{fault.line}" if fault.line else ""
    trace = wrapped(fault.traceback, width - 4, 20_000) if fault.traceback else []
    pieces: list[tuple[str, str]] = [("  ", "")]
    if trace:
        pieces.append(("▾ " if unfolded else "▸ ", "$accent"))
        pieces.append((f"traceback, {plural(len(trace), 'line')}  ", "$muted"))
    if where:
        pieces.append((f"{where}  ", "bold $accent"))
    if trace:
        pieces.append(("z folds" if unfolded else "z unfolds", "$muted"))
    lines = [tuple(pieces)] if len(pieces) > 1 else []
    if unfolded:
        lines += [((f"    {text}", "$muted"),) for text in trace]
        if fault.file:
            lines += [((f"    {text}", "$faint"),) for text in wrapped(fault.file, width - 4)]
    return lines
