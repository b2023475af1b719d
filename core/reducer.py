"""The function that applies events to state, used by proxy, console, replay and tests.

`reduce(state, event)` changes `state` in place and returns the keys of what it changed, so that a
screen repaints only that: "group:ID", "groups", "server:NAME", "servers", "alerts", "mock",
"rewards", "judges", "tries", "progress", "runs", "totals", "proxy". The handlers of a
subject lie beside its state, `core/state/X.py`.

`apply` is the same for a caller that must go on when a handler fails.
"""

import logging
from functools import lru_cache

from core.events import Event, GroupEvent, GroupOpened
from core.state import State
from core.state.common import NOTHING, Dirty, Handlers
from core.state.group import GROUP_HANDLERS, open_group
from core.state.inbox import note_late
from core.state.mock import MOCK_HANDLERS
from core.state.progress import PROGRESS_HANDLERS
from core.state.proxy import PROXY_HANDLERS
from core.state.rewards import REWARD_HANDLERS
from core.state.runs import RUN_HANDLERS
from core.state.server import SERVER_HANDLERS

log = logging.getLogger(__name__)

_HANDLERS: Handlers = {
    **PROXY_HANDLERS,
    **SERVER_HANDLERS,
    **REWARD_HANDLERS,
    **MOCK_HANDLERS,
    **PROGRESS_HANDLERS,
    **RUN_HANDLERS,
}


def reduce(state: State, event: Event) -> Dirty:
    """Apply one event to the state.

    An event of a group that the state does not have only changes its item in the inbox; a server
    that it does not have is added.

    Returns:
        Keys of what it changed.
    """
    state.seq = event.seq
    if isinstance(event, GroupEvent):
        if event.group_id in state.inbox:
            note_late(state, event)
        if type(event) is GroupOpened:
            open_group(state, event)
        elif (group := state.groups.get(event.group_id)) is None:
            return _group_changed(event.group_id) if event.group_id in state.inbox else NOTHING
        elif (change := GROUP_HANDLERS.get(type(event))) is not None:
            change(state, group, event)
        return _group_changed(event.group_id)
    handler = _HANDLERS.get(type(event))
    return handler(state, event) if handler else NOTHING


_FAILED: set[str] = set()
"""Kinds of events whose failure is in the log."""


def apply(state: State, event: Event) -> Dirty:
    """Apply one event as `reduce` does, and skip it if its handler fails: never raises.

    The journal contains events on which a handler failed, so that the bus and whatever replays a
    journal skip the same ones. The first failure of each kind is logged.

    Returns:
        Keys of what it changed; none if its handler fails.
    """
    try:
        return reduce(state, event)
    except Exception:  # one faulty event must not end a request, nor a start from the journal
        state.seq = event.seq
        if event.kind not in _FAILED:
            _FAILED.add(event.kind)
            log.exception(
                "the reducer failed on event %d (%s): it is skipped; later ones of this kind "
                "that fail are not logged",
                *(event.seq, event.kind),
            )
        return NOTHING


@lru_cache(maxsize=256)
def _group_changed(group_id: str) -> Dirty:
    return frozenset((f"group:{group_id}", "groups", "totals"))
