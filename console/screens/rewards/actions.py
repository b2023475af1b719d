"""What the keys of the rewards and the palette do: editor, clipboard, changes of a part."""

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from console.screens.rewards.model import find_part, last_fault, place_to_open
from console.screens.rewards.whatif import RewardsWhatIfScreen
from console.widgets.editor import open_place
from core.events import RewardPart

APPLY_NOTE = "Applies from the next group. The file of the rewards is rewritten; its comments stay."
WEIGHT, GATE, ENABLE = CHANGES = ("rewards.weight", "rewards.gate", "rewards.enable")


def reward_entries(app: AppHost) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of the palette entries that apply now."""
    state = app.session.state
    fault = last_fault(state)
    if can_edit(app):
        about = "Open the hook or the parts file in your editor"
        yield "Rewards: Edit the hook", about, partial(start, app, edit)
    if app.session.seen and state.rewards.source and not app.session.read_only:
        about = "Try other weights on the finished groups; nothing changes until applied"
        yield "Rewards: What if", about, lambda: app.push_screen(RewardsWhatIfScreen())
    if fault is not None:
        yield "Rewards: Copy the last fault", fault.cause[:80], partial(copy_fault, app)
    if fault is not None and fault.group_id:
        about = "The group the rewards failed on"
        yield "Rewards: Open the group that failed", about, partial(open_group, app)
    for part in state.rewards.parts:
        for command, title, about in _titles(part):
            if may_change(app, command, part.name):
                yield f"Rewards: {title}", about, partial(start, app, change, command, part.name)


def _titles(part: RewardPart) -> Iterator[tuple[str, str, str]]:
    """Yield command, title and help of each change of a part."""
    name = _name(part)
    yield WEIGHT, f"Set weight of {name}", f"Its weight is {part.weight:g}"
    about = "A weighted part again" if part.gate else "A factor of the whole reward"
    yield GATE, f"{'No gate' if part.gate else 'Gate'} {name}", about
    yield ENABLE, f"Switch {name} {'off' if part.enabled else 'on'}", "The others share its weight"


def _name(part: RewardPart) -> str:
    return one_line(part.name, 40)


def start(app: AppHost, work: Callable[..., Coroutine[Any, Any, None]], *args: str) -> None:
    """Do what asks or waits in the background; a newer question replaces it."""
    app.run_worker(work(app, *args), group="question", exclusive=True, exit_on_error=False)


def can_edit(app: AppHost) -> bool:
    """Return whether there is a file to edit; a read-only console opens no editor."""
    return not app.session.read_only and bool(place_to_open(app.session.state)[0])


async def edit(app: AppHost) -> None:
    """Open the place of the last fault, or the hook, in the operator's editor."""
    try:
        await open_place(app, *place_to_open(app.session.state))
    except AjetError as error:
        app.say(str(error), "error")


def copy_fault(app: AppHost) -> None:
    """Copy place, cause and traceback of the last fault."""
    if (fault := last_fault(app.session.state)) is not None:
        texts = (fault.place, fault.cause, fault.traceback.rstrip())
        app.copy("\n".join(filter(None, texts)), "Copied the fault")


def open_group(app: AppHost) -> None:
    """Show the group the rewards failed on."""
    from console.screens.group.screen import GroupScreen

    fault = last_fault(app.session.state)
    if fault is not None and fault.group_id:
        app.push_screen(GroupScreen(fault.group_id))


def may_change(app: AppHost, command: str, name: str) -> bool:
    """Return whether the command applies to the part."""
    session, part = app.session, find_part(app.session.state, name)
    if session.observing or not session.allows(command) or part is None:
        return False
    if len(session.state.rewards.parts) < 2 or (command == WEIGHT and part.gate):
        return False  # the weight of a gate is ignored
    return part.enabled or command == ENABLE


async def change(app: AppHost, command: str, name: str) -> None:
    """Confirm a change of a part, then send it."""
    part = find_part(app.session.state, name)
    if part is None:
        return
    if command == WEIGHT:
        await _set_weight(app, part)
        return
    if command == GATE:
        on, label = not part.gate, "Change"
        title = f"Make {_name(part)} {'a gate' if on else 'a weighted part'}?"
        body = "It multiplies the whole reward: where it is 0 the reward is 0."
        if not on:
            body = f"It counts with its weight, {part.weight:g}, instead of multiplying the whole."
    else:
        on, body = not part.enabled, "The others share its weight."
        label = f"Switch {'on' if on else 'off'}"
        title = f"Switch {_name(part)} {'on' if on else 'off'}?"
    if await app.confirm(title, f"{body} {APPLY_NOTE}", label):
        await app.send_command(command, part=name, on=on)


async def _set_weight(app: AppHost, part: RewardPart) -> None:
    """Ask for a weight until it is accepted."""
    title, why, answer = f"Set weight of {_name(part)}", "", f"{part.weight:g}"
    label = f"Its {'share of the whole, 0 to 1' if part.share else 'weight'}. {APPLY_NOTE}"
    while True:
        typed = await app.ask(title, why + label, answer)
        if typed is None:
            return
        answer = typed
        try:
            weight = float(answer)
        except ValueError:
            why = f"{one_line(answer, 40)} is not a number.\n"
            continue
        outcome = await app.session.command(WEIGHT, part=part.name, weight=weight)
        if outcome.ok:
            app.say(outcome.message)
            return
        why = f"{outcome.message}.\n"
