"""Changes of a part of the reward: description of the model, dialogs, commands."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from console.text.lines import Line
from core.events import RewardPart
from core.state import State

APPLY_NOTE = "Applies from the next group. The file of the rewards is rewritten; its comments stay."
WEIGHT, GATE, ENABLE = "rewards.weight", "rewards.gate", "rewards.enable"


def model_pieces(state: State) -> list[Line]:
    """Return gates, weighted parts and disabled parts; empty for a hook folder alone."""
    parts = state.rewards.parts
    gates = [_name(part) for part in parts if part.enabled and part.gate]
    sums = [_name(part) for part in parts if part.enabled and not part.gate]
    off = [_name(part) for part in parts if not part.enabled]
    if len(parts) < 2:
        return []
    named: list[Line] = []
    if gates:
        named.append((("gates ", "$muted"), (" × ".join(gates), "")))
    if sums:
        weighed = [_weighed(part) for part in _sums(parts)]
        named.append((("weights ", "$muted"), (weighed[0], "")))
        named += [((text, ""),) for text in weighed[1:]]
    if off:
        named.append((("off ", "$muted"), (", ".join(off), "$muted")))
    return named


def _sums(parts: tuple[RewardPart, ...]) -> list[RewardPart]:
    return [part for part in parts if part.enabled and not part.gate]


def _name(part: RewardPart) -> str:
    return one_line(part.name, 40)


def _weighed(part: RewardPart) -> str:
    share = f"{part.weight:.0%} of all" if part.share else f"{part.weight:g}"
    return f"{_name(part)} {share}"


def find_part(state: State, name: str) -> RewardPart | None:
    """Return the part of the model with that name; None for a value recorded by a hook."""
    return next((part for part in state.rewards.parts if part.name == name), None)


def may(app: AppHost, command: str, name: str) -> bool:
    """Return whether the command applies to the part."""
    session = app.session
    if session.observing or not session.allows(command) or len(session.state.rewards.parts) < 2:
        return False
    part = find_part(session.state, name)
    if part is None or (command == WEIGHT and part.gate):  # the weight of a gate is ignored
        return False
    return part.enabled or command == ENABLE


def change(app: AppHost, command: str, name: str) -> None:
    """Confirm a change, then send it."""
    work = {WEIGHT: _weigh, GATE: _gate, ENABLE: _enable}[command]
    app.run_worker(work(app, name), group="question", exclusive=True, exit_on_error=False)


def change_entries(app: AppHost) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action for every part that can be changed now."""
    for part in app.session.state.rewards.parts:
        name = _name(part)
        if may(app, WEIGHT, part.name):
            weigh = partial(change, app, WEIGHT, part.name)
            yield f"Rewards: Set weight of {name}", f"Its weight is {part.weight:g}", weigh
        if may(app, GATE, part.name):
            about = "A weighted part again" if part.gate else "A factor of the whole reward"
            title = f"Rewards: {'No gate' if part.gate else 'Gate'} {name}"
            yield title, about, partial(change, app, GATE, part.name)
        if may(app, ENABLE, part.name):
            title = f"Rewards: Switch {name} {'off' if part.enabled else 'on'}"
            yield title, "The others share its weight", partial(change, app, ENABLE, part.name)


async def _weigh(app: AppHost, name: str) -> None:
    part = find_part(app.session.state, name)
    if part is None:
        return
    word = "share of the whole, 0 to 1" if part.share else "weight"
    title, label = f"Set weight of {_name(part)}", f"Its {word}. {APPLY_NOTE}"
    answer = await app.ask(title, label, f"{part.weight:g}")
    while answer is not None:
        try:
            outcome = await app.session.command(WEIGHT, part=name, weight=float(answer))
        except ValueError:
            why = f"{one_line(answer, 40)} is not a number"
        else:
            why = "" if outcome.ok else outcome.message
        if not why:
            app.say(outcome.message)
            return
        answer = await app.ask(title, f"{why}.\n{label}", answer)


async def _gate(app: AppHost, name: str) -> None:
    part = find_part(app.session.state, name)
    if part is None:
        return
    title = f"Make {_name(part)} {'a weighted part' if part.gate else 'a gate'}?"
    counts = (
        f"It counts with its weight, {part.weight:g}, instead of multiplying the whole reward."
        if part.gate
        else "It multiplies the whole reward: where it is 0 the reward is 0."
    )
    if await app.confirm(title, f"{counts} {APPLY_NOTE}", "Change"):
        await app.send_command(GATE, part=name, on=not part.gate)


async def _enable(app: AppHost, name: str) -> None:
    part = find_part(app.session.state, name)
    if part is None:
        return
    word = "off" if part.enabled else "on"
    title = f"Switch {_name(part)} {word}?"
    if await app.confirm(title, f"The others share its weight. {APPLY_NOTE}", f"Switch {word}"):
        await app.send_command(ENABLE, part=name, on=not part.enabled)
