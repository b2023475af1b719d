"""`watch`: print the proxy's events, one line each, as text or as JSON for scripts.

`--json` prints `{"kind": "snapshot", "seq", "state"}` first and whenever the feed cannot continue
after the last event; the state is a summary unless `--full` is given. Then follows each event as
stored in the journal, and `{"kind": "lost", "cause"}` when the proxy does not answer. No event is
printed twice: after an interruption, the output continues with the next one.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean, one_line
from console.cli.common import changed_keys, connected, existing_home, filter_of
from console.cli.options import PROXY, Args, Range, flag, option, takes
from console.cli.output import output
from console.json_view import json_view
from console.models.advice import advice_context
from console.models.alerts import current_alerts
from console.text.alert_words import AdviceContext
from console.text.alerts import alert_text, in_words
from console.text.format import clock, lost_text
from console.views.events import event_line
from core.events import EVENT_KINDS, AlertRaised, Event, GroupEvent, UpdateDone
from core.jsonio import encode_full
from core.state import Group, State, apply

FIRST_DELAY = 0.25
LAST_DELAY = 5.0


@takes(
    flag("--full", "with --json: first the whole state with all groups"),
    option(
        "--filter FILTER", "only groups that match; the syntax is that of the console's filter line"
    ),
    option("--kind EVENT", "only events of this kind; repeatable", multiple=True),
    option(
        "--until EVENT[:WORD]",
        "end after the first event of this kind (with WORD as the value of a field)",
    ),
    option("--timeout S", "give up after S seconds", type=Range(0)),
    PROXY,
    notes=(
        "         ajet-console watch --until engine_changed:ROLLING --timeout 60",
        "Exit code: 0 the event of --until came or the output was closed, 1 no proxy or --timeout "
        "has passed, 2 wrong use, 130 interrupted.",
    ),
)
def watch(args: Args) -> int:
    """Follow the feed until interrupted, or until the event of `--until`.

    Returns:
        0, or 1 when `--timeout` passes first.

    Raises:
        UsageError: the filter, an event's name or the timeout is invalid.
        AjetError: there is no proxy, or it refuses.
    """
    output().stream = True
    event_filter = EventFilter(args.filter, args.kind or (), args.until)
    keys = changed_keys(existing_home(args))
    lines = JsonOutput(keys, full=args.full) if args.json else TextOutput(keys)

    async def followed() -> None:
        async with asyncio.timeout(args.timeout):
            await Follower(event_filter, lines).run(args)

    try:
        asyncio.run(followed())
    except TimeoutError:
        sys.stderr.write(f"ajet-console: no such event within {args.timeout:g} s\n")
        return 1
    return 0


class EventFilter:
    """Decides which events are printed, and which one is the last.

    Args:
        line: A filter line: print only events of groups that match at that time.
        kinds: Print only events of these kinds; all when empty.
        until: `KIND`, or `KIND:WORD` where WORD is the value of one of the event's fields.
    """

    def __init__(self, line: str | None, kinds: Sequence[str], until: str | None):
        self._matches = filter_of(line, "--filter").matches if line is not None else None
        self._kinds = {_known(kind) for names in kinds for kind in names.split(",")}
        kind, _, word = (until or "").partition(":")
        self._last, self._word = _known(kind) if kind else "", word.casefold()

    @property
    def filtered(self) -> bool:
        """Whether only some groups are printed."""
        return self._matches is not None

    def group(self, group: Group | None) -> bool:
        """Return whether a group matches."""
        return self._matches is None or (group is not None and self._matches(group))

    def event(self, event: Event, state: State) -> bool:
        """Return whether to print an event; `state` is the state after it."""
        if self._kinds and event.kind not in self._kinds and not self.last(event):
            return False
        if self._matches is None:
            return True
        return isinstance(event, GroupEvent) and self.group(state.groups.get(event.group_id))

    def last(self, event: Event) -> bool:
        """Return whether this is the event of `until`."""
        if not self._last or event.kind != self._last:
            return False
        values = msgspec.structs.asdict(event).values()
        words = (value.casefold() for value in values if isinstance(value, str))
        return not self._word or self._word in words

    def reached(self, state: State) -> bool:
        """Return whether a snapshot already satisfies `until`.

        Only an engine's state and the phase of the last what-if can be read from a snapshot.
        """
        words: list[str] = []
        if self._last == "what_if_changed" and state.what_if is not None:
            words = [state.what_if.phase]
        elif self._last == "engine_changed":
            servers = state.servers.values()
            words = [server.state.casefold() for server in servers if not server.lost]
        return bool(self._word) and self._word in words


def known_kinds() -> list[str]:
    """Return the kinds of all events, sorted."""
    return sorted(str(kind.__struct_config__.tag) for kind in EVENT_KINDS)


def _known(kind: str) -> str:
    word, known = kind.strip().lower().replace("-", "_"), known_kinds()
    if word not in known:
        todo = did_you_mean(word, known, 3) or f"Known: {', '.join(known)}"
        raise UsageError(f"there is no event `{one_line(kind, 40)}`", todo=todo)
    return word


class JsonOutput:
    """Formats JSON lines for scripts.

    Args:
        keys: Keys that the operator has changed, for the advice of alerts.
        full: A snapshot contains the whole state with all groups in memory; else a summary.
    """

    def __init__(self, keys: Mapping[str, str] | None = None, *, full: bool = False) -> None:
        self._keys, self._full = keys, full

    def snapshot(self, state: State) -> list[bytes]:
        context = _context(self._keys, state)
        shown: Any = json_view(state, context)
        if self._full:
            alerts = {key: in_words(alert, context) for key, alert in current_alerts(state).items()}
            shown = msgspec.structs.replace(state, alerts=alerts)
        return [encode_full({"kind": "snapshot", "seq": state.seq, "state": shown})]

    def event(self, event: Event, state: State) -> list[bytes]:
        if isinstance(event, AlertRaised):
            event = in_words(event, _context(self._keys, state))
        return [encode_full(event)]

    def lost(self, cause: str) -> list[bytes]:
        return [msgspec.json.encode({"kind": "lost", "at": time.time(), "cause": cause})]


class TextOutput:
    """Formats lines for people: time, subject, event.

    Args:
        keys: Keys that the operator has changed, for the advice of alerts.
    """

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        self._keys = keys

    def snapshot(self, state: State) -> list[bytes]:
        now, context = time.time(), _context(self._keys, state)
        waiting = [group for group in state.waiting() if group.rating is None]
        users = sum(group.user_waits for group in waiting)
        counts = f"{len(state.open_groups())} open, {len(waiting)} to rate"
        counts += f" (waiting users: {users})" if users else ""
        counts += f", {state.totals.groups} groups in all, rating {state.rating_mode}"
        lines = [_line(now, "now", counts)]
        for server in state.servers.values():
            shown = lost_text(server, now) if server.lost else server.state
            shown += "" if server.step is None else f", step {server.step}"
            shown += f": {one_line(server.lost, 60)}" if server.lost else ""
            lines.append(_line(now, server.name, shown))
        for key, alert in current_alerts(state).items():
            since = state.alerts_since.get(key, alert.at)
            lines.append(_line(since, "! alert", alert_text(alert, context).cause))
        return lines

    def event(self, event: Event, state: State) -> list[bytes]:
        line = event_line(event, _context(self._keys, state))
        if line is None or line.level == "debug":
            return []
        mark = "! " if line.level in ("warning", "error") else ""
        more = _step_rewards(event, state) if isinstance(event, UpdateDone) else ""
        return [_line(event.at, f"{mark}{line.about}", line.text + more)]

    def lost(self, cause: str) -> list[bytes]:
        return [_line(time.time(), "! link", f"{cause}; retrying")]


def _context(keys: Mapping[str, str] | None, state: State) -> AdviceContext:
    return advice_context(keys, watch_only=state.watch_only)


def _step_rewards(event: UpdateDone, state: State) -> str:
    """Return the automatic and human rewards of an update with human-rated groups; else empty."""
    server = state.servers.get(event.server)
    steps = server.steps if server is not None else []
    step = next((step for step in steps if step.step == event.step and step.by_hand), None)
    if step is None:
        return ""
    automatic = f", automatic {step.auto_mean:.3g}" if step.auto else ""
    winner = f", winner {step.hand_mean:.3g}" if step.hand else ""
    return f"{automatic}, human-rated groups {step.by_hand}{winner}"


def _line(at: float, about: str, text: str) -> bytes:
    return f"{clock(at)}  {one_line(about, 16):<16}  {one_line(text, 200)}".encode()


class Follower:
    """Follows one feed and prints its events.

    Args:
        event_filter: Chooses the events to print.
        output: Formats them.
        write: Receives complete lines; standard output when left out.
    """

    def __init__(
        self,
        event_filter: EventFilter,
        output: JsonOutput | TextOutput,
        write: Callable[[list[bytes]], None] | None = None,
    ) -> None:
        self._filter, self._output = event_filter, output
        self._write = write or _stdout
        self._state: State | None = None
        self._snapshot_due = True
        self._loss_reported = False
        self._delay = FIRST_DELAY

    async def run(self, args: Args) -> None:
        """Follow until the event of `--until`."""
        while True:
            try:
                async with connected(args) as client:  # the URL may change in a restart
                    if await self.follow(client):
                        return
            except AjetError as error:
                if self._state is None:
                    raise
                if not self._loss_reported:
                    await self._put(self._output.lost(str(error)))
                self._loss_reported = True
            await asyncio.sleep(self._delay * random.uniform(0.8, 1.2))
            self._delay = min(self._delay * 2, LAST_DELAY)

    async def follow(self, client: Any) -> bool:
        """Read one connection until it ends; True after the event of `--until`."""
        while True:
            if self._state is None or self._snapshot_due:
                self._state = await self._snapshot(client)
                self._snapshot_due = False
                if self._filter.reached(self._state):
                    return True
            state = self._state
            async with contextlib.aclosing(client.events(state.seq, run_id=state.run_id)) as feed:
                async for item in feed:
                    self._delay, self._loss_reported = FIRST_DELAY, False
                    if not isinstance(item, Event):
                        self._snapshot_due = True
                        break
                    if await self._apply(state, item):
                        return True
                else:
                    return False

    async def _snapshot(self, client: Any) -> State:
        state: State = await client.snapshot()
        shown = state
        if self._filter.filtered:
            groups = {
                name: group for name, group in state.groups.items() if self._filter.group(group)
            }
            shown = msgspec.structs.replace(state, groups=groups)
        await self._put(self._output.snapshot(shown))
        return state

    async def _apply(self, state: State, event: Event) -> bool:
        """Print an event if it is new and matches; True after that of `--until`."""
        if event.seq <= state.seq:
            return False
        apply(state, event)
        if not self._filter.event(event, state):
            return False
        await self._put(self._output.event(event, state))
        return self._filter.last(event)

    async def _put(self, lines: list[bytes]) -> None:
        if lines:
            await asyncio.to_thread(self._write, lines)  # the reader may be slow


def _stdout(lines: list[bytes]) -> None:
    out = sys.stdout.buffer
    out.write(b"".join(line + b"\n" for line in lines))
    out.flush()
