"""Prompts that were tried, as lines: the list, and answers side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len

from ajet_swarm.common.text import one_line, plural
from console.text.format import UNKNOWN, clock, duration, elapsed, lost_text
from console.text.lines import Line, fit
from console.text.tool_calls import calls_text
from console.text.wrap import wrapped
from console.ui.table import Cell, Column, Table
from core.state import Probe, State

NARROWEST = 36
"""Fewest cells of a column of answers."""
MAX_COLUMNS = 3
_GAP = " │ "


def compared(state: State, try_id: str, room: int) -> list[Probe]:
    """Return the chosen prompt and those to compare it with, newest first, at most `room`.

    Earlier answers to the same prompt come first, because they show the effect of training.
    """
    tries = state.tries[::-1]
    chosen = next((probe for probe in tries if probe.try_id == try_id), None)
    if chosen is None:
        return []
    others = [probe for probe in tries[tries.index(chosen) + 1 :] if probe.over]
    others.sort(key=lambda probe: probe.prompt != chosen.prompt)
    return [chosen, *others][: max(1, room)]


def columns(width: int) -> int:
    """Return how many answers fit side by side."""
    return max(1, min(MAX_COLUMNS, (width + len(_GAP)) // (NARROWEST + len(_GAP))))


@dataclass(frozen=True, slots=True)
class Try:
    """A prompt that was tried, at the time when it is shown."""

    probe: Probe
    now: float


def _step(row: Try) -> str:
    return UNKNOWN if row.probe.step is None else str(row.probe.step)


def _took(row: Try) -> Cell:
    probe = row.probe
    if not probe.over:
        return elapsed(row.now - probe.at), "bold $engine-syncing"
    if probe.error:
        return "failed" if probe.error != "cancelled" else "cancel.", "$reward-down"
    return duration(probe.seconds), "$muted"


TABLE: Table[Try] = Table(
    (
        Column("time", 8, lambda row: clock(row.probe.at), "$muted"),
        Column("server", 10, lambda row: one_line(row.probe.server, 20)),
        Column("step", 5, _step, right=True),
        Column("took", 6, _took, right=True),
        Column(" prompt", 9, lambda row: f" {one_line(row.probe.prompt, 300)}", most=999),
    ),
)


def waits_for(probe: Probe, state: State, now: float) -> str:
    """Return what a running prompt waits for."""
    group = state.groups.get(probe.group_id)
    server = state.servers.get(probe.server)
    waited = elapsed(now - probe.at)
    where = ""
    if server is not None:
        shown = lost_text(server, now) if server.lost else server.state.replace("_", " ")
        where = f"; the engine is {shown}"
    if group is not None and group.phase == "GENERATING":
        return f"the policy answers, {waited}"
    if group is not None and group.phase in ("SCORING", "SUBMITTING", "AWAITING_RATING"):
        return f"the answer is scored, {waited}"
    return f"waits for an episode, {waited}{where}"


def answers(probes: Sequence[Probe], state: State, now: float, width: int) -> list[Line]:
    """Return the answers side by side, each under its step and time."""
    if not probes:
        return [(("Type a prompt above; its answer appears here.", "$muted"),)]
    room = (width - len(_GAP) * (len(probes) - 1)) // len(probes)
    shown = [_column(probe, state, now, room, probes[0]) for probe in probes]
    lines: list[Line] = []
    for cells in zip_longest(*shown, fillvalue=("", "")):
        line: Line = ()
        for text, tone in cells[:-1]:
            line = (
                *line,
                (text, tone),
                (" " * max(0, room - cell_len(text)), ""),
                (_GAP, "$faint"),
            )
        lines.append((*line, cells[-1]))
    return lines


def _column(
    probe: Probe, state: State, now: float, width: int, chosen: Probe
) -> list[tuple[str, str]]:
    step = "step unknown" if probe.step is None else f"step {probe.step}"
    server = state.servers.get(probe.server)
    if probe.run and server is not None and len(server.runs) > 1:
        step = f"run {probe.run} {step}"  # steps of another run are other weights
    where = f" · {one_line(probe.server, 16)}" if len(state.servers) > 1 else ""
    shown = [(one_line(f"{step} · {clock(probe.at)}{where}", width), "bold $heading")]
    if probe.prompt != chosen.prompt:
        shown.append((fit(f"prompt: {one_line(probe.prompt, 200)}", width).rstrip(), "$muted"))
    if not probe.over:
        text = f"◔ {waits_for(probe, state, now)}"
        return [*shown, *((line, "$engine-syncing") for line in wrapped(text, width))]
    if probe.error:
        text = f"× no answer: {probe.error}"
        return [*shown, *((line, "$reward-down") for line in wrapped(text, width))]
    shown.append((fit(_figures(probe, state), width).rstrip(), "$muted"))
    shown.append(("", ""))
    if probe.reasoning:
        thought = plural(len(probe.reasoning.split()), "word")
        shown.append((fit(f"▸ reasoning, {thought}", width).rstrip(), "$muted"))
    shown += [(line, "") for line in wrapped(probe.text, width)]
    shown += [(line, "$accent") for line in wrapped(calls_text(probe.tool_calls), width)]
    if not (probe.text or probe.tool_calls):
        shown.append(("(an empty answer)", "$muted"))
    if probe.cut:
        shown.append((fit("… cut here: Enter shows its group", width).rstrip(), "$muted"))
    return shown


def _figures(probe: Probe, state: State) -> str:
    how = "" if probe.finish_reason == "stop" else one_line(probe.finish_reason, 12)
    facts = [duration(probe.seconds), plural(probe.tokens, "token"), how]
    group = state.groups.get(probe.group_id)
    if group is not None and group.candidates:
        reward = group.candidates[0].auto_reward
        if reward is not None:
            facts.append(f"reward {reward:.2f}")
    return " · ".join(word for word in facts if word)
