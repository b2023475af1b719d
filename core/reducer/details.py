"""What reading along makes of events: slots of servers, prompts that were tried."""

from collections.abc import Callable
from typing import Any

from core.events import Event, SlotsSeen, TryAnswered, TryAsked
from core.state import TEXT_CAP, Server, State
from core.state.details import TRY_CAP, Slots, Try

Dirty = frozenset[str]
TRIES: Dirty = frozenset(("tries",))


def _slots(state: State, event: SlotsSeen) -> Dirty:
    server = state.servers.get(event.server)
    if server is None:
        server = state.servers[event.server] = Server(name=event.server, url="")
    server.slots = Slots(
        free=event.free,
        claimed=event.claimed,
        clients=event.clients,
        more=event.more,
        at=event.at,
    )
    return frozenset((f"server:{event.server}", "servers"))


def _asked(state: State, event: TryAsked) -> Dirty:
    state.tries.append(
        Try(
            try_id=event.try_id,
            server=event.server,
            group_id=event.group_id,
            prompt=event.prompt[:TEXT_CAP],
            step=event.step,
            at=event.at,
        )
    )
    del state.tries[:-TRY_CAP]
    return TRIES


def _answered(state: State, event: TryAnswered) -> Dirty:
    for one in reversed(state.tries):
        if one.try_id == event.try_id:
            one.over = True
            one.text = event.text[:TEXT_CAP]
            one.reasoning = event.reasoning[:TEXT_CAP]
            one.tool_calls = event.tool_calls[:TEXT_CAP]
            one.cut = max(map(len, (event.text, event.reasoning, event.tool_calls))) > TEXT_CAP
            one.finish_reason = event.finish_reason
            one.tokens = event.tokens
            one.seconds = event.seconds
            one.step = event.step if event.step is not None else one.step
            one.error = event.error
            return TRIES
    return frozenset()


def lose_tries(state: State) -> Dirty:
    """A proxy that began anew answers none of those before."""
    lost = [one for one in state.tries if not one.over]
    for one in lost:
        one.over, one.error = True, "the proxy ended before the answer came"
    return TRIES if lost else frozenset()


LOOK_HANDLERS: dict[type[Event], Callable[[State, Any], Dirty]] = {
    SlotsSeen: _slots,
    TryAsked: _asked,
    TryAnswered: _answered,
}
