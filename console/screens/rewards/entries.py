"""Palette entries of the rewards: editor, clipboard, group."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.models.app_host import AppHost
from console.views.rewards.fault import last_fault, place_to_open
from console.widgets.editor import open_place


def reward_entries(app: AppHost) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of the palette entries that apply now."""
    state = app.session.state
    fault = last_fault(state)
    if can_edit(app):
        yield (
            "Rewards: Edit the hook",
            "Open the hook or the parts file in your editor",
            partial(edit, app),
        )
    if app.session.seen and state.rewards.source and not app.session.read_only:
        about = "Try other weights on the finished groups; nothing changes until applied"
        yield "Rewards: What if", about, partial(what_if, app)
    if fault is not None:
        yield "Rewards: Copy the last fault", fault.cause[:80], partial(copy_fault, app)
    if fault is not None and fault.group_id:
        about = "The group the rewards failed on"
        yield "Rewards: Open the group that failed", about, partial(open_group, app)


def what_if(app: AppHost) -> None:
    """Open the screen of other weights."""
    from console.screens.rewards.whatif import RewardsWhatIfScreen

    app.push_screen(RewardsWhatIfScreen())


def can_edit(app: AppHost) -> bool:
    """Return whether there is a file to edit; a read-only console opens no editor."""
    return not app.session.read_only and bool(place_to_open(app.session.state)[0])


def edit(app: AppHost) -> None:
    """Open the place of the last fault, or the hook, in the operator's editor."""
    app.run_worker(_edit(app), group="question", exclusive=True, exit_on_error=False)


async def _edit(app: AppHost) -> None:
    file, line = place_to_open(app.session.state)
    try:
        await open_place(app, file, line)
    except AjetError as error:
        app.say(str(error), "error")


def copy_fault(app: AppHost) -> None:
    """Copy place, cause and traceback of the last fault."""
    fault = last_fault(app.session.state)
    if fault is None:
        return
    place = f"{fault.file}:{fault.line}" if fault.file else ""
    texts = [text for text in (place, fault.cause, fault.traceback.rstrip()) if text]
    app.copy("\n".join(texts), "Copied the fault")


def open_group(app: AppHost) -> None:
    """Show the group the rewards failed on."""
    from console.screens.group.screen import GroupScreen

    fault = last_fault(app.session.state)
    if fault is not None and fault.group_id:
        app.push_screen(GroupScreen(fault.group_id))
