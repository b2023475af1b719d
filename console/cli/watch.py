"""`watch`: print the proxy's events, one line each, as text or as JSON for scripts.

`--json` prints `{"kind": "snapshot", "seq", "state"}` first and whenever the feed cannot continue
after the last event; the state is a summary unless `--full` is given. Then follows each event as
stored in the journal, and `{"kind": "lost", "cause"}` when the proxy does not answer. No event is
printed twice: after an interruption, the output continues with the next one.
"""

import asyncio
import contextlib
import datetime as dt
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean, one_line
from console.cli.common import changed_keys, connected, existing_home
from console.cli.options import PROXY, Args, Range, flag, option, takes
from console.cli.output import output
from console.json_view import json_view
from console.models.advice import advice_context
from console.models.alerts import current_alerts
from console.text.alerts import alert_text, in_words
from console.text.format import lost_text
from console.views.events import event_line
from core.events import EVENT_KINDS, AlertRaised, Event, GroupEvent, UpdateDone
from core.jsonio import encode_full
from core.state import Group, State, apply

FIRST_DELAY = 0.25
LAST_DELAY = 5.0


@takes(
    flag("--full", "with --json: first the whole state with all groups"),
    option(
        "--filter",
        "FILTER",
        "only groups that match; the syntax is that of the console's filter line",
    ),
    option("--kind", "EVENT", "only events of this kind; repeatable", multiple=True),
    option(
        "--until",
        "EVENT[:WORD]",
        "end after the first event of this kind (with WORD as the value of a field)",
    ),
    option("--timeout", "S", "give up after S seconds", type=Range(0)),
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
    lines = JsonOutput(full=args.full, keys=keys) if args.json else TextOutput(keys)
    follower = Follower(event_filter, lines)
    try:
        asyncio.run(_bounded(follower, args))
    except TimeoutError:
        sys.stderr.write(f"ajet-console: no such event within {args.timeout:g} s\n")
        return 1
    return 0


async def _bounded(follower: "Follower", args: Args) -> None:
    async with asyncio.timeout(args.timeout):
        await follower.run(args)


class EventFilter:
    """Decides which events are printed, and which one is the last.

    Args:
        line: A filter line: print only events of groups that match at that time.
        kinds: Print only events of these kinds; all when empty.
        until: `KIND`, or `KIND:WORD` where WORD is the value of one of the event's fields.
    """

    def __init__(self, line: str | None, kinds: "list[str] | tuple[str, ...]", until: str | None):
        self._matches: Callable[[Group], bool] | None = None
        if line is not None:
            from console.session.filters import parse

            self._matches = parse(line).matches
        known = known_kinds()
        self._kinds = {_known(kind, known) for names in kinds for kind in names.split(",")}
        kind, _, word = (until or "").partition(":")
        self._last = _known(kind, known) if kind else ""
        self._word = word.casefold()

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
        if not self._word:
            return True
        words = msgspec.structs.asdict(event).values()
        return any(isinstance(word, str) and word.casefold() == self._word for word in words)

    def reached(self, state: State) -> bool:
        """Return whether a snapshot already satisfies `until`.

        Only an engine's state and the phase of the last what-if can be read from a snapshot.
        """
        if self._word and self._last == "what_if_changed":
            return state.what_if is not None and state.what_if.phase == self._word
        return (
            bool(self._word)
            and self._last == "engine_changed"
            and any(
                server.state.casefold() == self._word and not server.lost
                for server in state.servers.values()
            )
        )


def known_kinds() -> list[str]:
    """Return the kinds of all events, sorted."""
    return sorted(str(kind.__struct_config__.tag) for kind in EVENT_KINDS)


def _known(kind: str, known: list[str]) -> str:
    word = kind.strip().lower().replace("-", "_")
    if word not in known:
        todo = did_you_mean(word, known, 3) or f"Known: {', '.join(known)}"
        raise UsageError(f"there is no event `{one_line(kind, 40)}`", todo=todo)
    return word


class JsonOutput:
    """Formats JSON lines for scripts.

    Args:
        full: A snapshot contains the whole state with all groups in memory; else a summary.
        keys: Keys that the operator has changed, for the advice of alerts.
    """

    def __init__(self, *, full: bool = False, keys: Mapping[str, str] | None = None) -> None:
        self._full = full
        self._keys = keys

    def snapshot(self, state: State) -> list[bytes]:
        context = advice_context(self._keys, watch_only=state.watch_only)
        shown: Any = json_view(state, context)
        if self._full:
            alerts = {key: in_words(alert, context) for key, alert in current_alerts(state).items()}
            shown = msgspec.structs.replace(state, alerts=alerts)
        data = {"kind": "snapshot", "seq": state.seq, "state": shown}
        return [encode_full(data)]

    def event(self, event: Event, state: State) -> list[bytes]:
        if isinstance(event, AlertRaised):
            context = advice_context(self._keys, watch_only=state.watch_only)
            event = in_words(event, context)
        return [encode_full(event)]

    def lost(self, cause: str) -> list[bytes]:
        data = {"kind": "lost", "at": time.time(), "cause": cause}
        return [msgspec.json.encode(data)]


class TextOutput:
    """Formats lines for people: time, subject, event.

    Args:
        keys: Keys that the operator has changed, for the advice of alerts.
    """

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        self._keys = keys

    def snapshot(self, state: State) -> list[bytes]:
        waiting = [group for group in state.waiting() if group.rating is None]
        users = sum(group.user_waits for group in waiting)
        users_text = f" (waiting users: {users})" if users else ""
        lines = [
            _line(
                time.time(),
                "now",
                f"{len(state.open_groups())} open, {len(waiting)} to rate{users_text}, "
                f"{state.totals.groups} groups in all, rating {state.rating_mode}",
            )
        ]
        for server in state.servers.values():
            step = "" if server.step is None else f", step {server.step}"
            shown = f"{lost_text(server, time.time())}{step}: {one_line(server.lost, 60)}"
            lines.append(
                _line(time.time(), server.name, shown if server.lost else f"{server.state}{step}")
            )
        context = advice_context(self._keys, watch_only=state.watch_only)
        for key, alert in current_alerts(state).items():
            since = state.alerts_since.get(key, alert.at)
            lines.append(_line(since, "! alert", alert_text(alert, context).cause))
        return lines

    def event(self, event: Event, state: State) -> list[bytes]:
        line = event_line(event, advice_context(self._keys, watch_only=state.watch_only))
        if line is None or line.level == "debug":
            return []
        mark = "! " if line.level in ("warning", "error") else ""
        more = _step_rewards(event, state) if isinstance(event, UpdateDone) else ""
        return [_line(event.at, f"{mark}{line.about}", line.text + more)]

    def lost(self, cause: str) -> list[bytes]:
        return [_line(time.time(), "! link", f"{cause}; retrying")]


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
    clock = dt.datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")
    return f"{clock}  {one_line(about, 16):<16}  {one_line(text, 200)}".encode()


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
        self._filter = event_filter
        self._output = output
        self._write = write or _stdout
        self._state = State()
        self._snapshot_due = True
        self._has_state = False
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
                if not self._has_state:
                    raise
                await self._report_loss(str(error))
            await asyncio.sleep(self._delay * random.uniform(0.8, 1.2))
            self._delay = min(self._delay * 2, LAST_DELAY)

    async def follow(self, client: Any) -> bool:
        """Read one connection until it ends; True after the event of `--until`."""
        while True:
            if self._snapshot_due:
                await self._read_snapshot(client)
                if self._filter.reached(self._state):
                    return True
            feed = client.events(self._state.seq, run_id=self._state.run_id)
            async with contextlib.aclosing(feed):
                async for item in feed:
                    self._delay, self._loss_reported = FIRST_DELAY, False
                    if not isinstance(item, Event):
                        self._snapshot_due = True
                        break
                    if await self._apply(item):
                        return True
                else:
                    return False

    async def _read_snapshot(self, client: Any) -> None:
        state: State = await client.snapshot()
        shown = state
        if self._filter.filtered:
            groups = {
                key: group for key, group in state.groups.items() if self._filter.group(group)
            }
            shown = msgspec.structs.replace(state, groups=groups)
        await self._put(self._output.snapshot(shown))
        self._state, self._snapshot_due, self._has_state = state, False, True

    async def _apply(self, event: Event) -> bool:
        if event.seq <= self._state.seq:
            return False
        apply(self._state, event)
        if self._filter.event(event, self._state):
            await self._put(self._output.event(event, self._state))
            return self._filter.last(event)
        return False

    async def _report_loss(self, cause: str) -> None:
        if not self._loss_reported:
            await self._put(self._output.lost(cause))
        self._loss_reported = True

    async def _put(self, lines: list[bytes]) -> None:
        if lines:
            await asyncio.to_thread(self._write, lines)  # the reader may be slow


def _stdout(lines: list[bytes]) -> None:
    out = sys.stdout.buffer
    out.write(b"".join(line + b"\n" for line in lines))
    out.flush()
