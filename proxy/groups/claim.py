"""The episodes of a group: which requests may claim, the claim, the end or return.

1. `check_servable` refuses what the server cannot answer: kinds of content, too many choices.
2. `fit_to_capacity` lowers the number of candidates to what the server has at a time: a group that
   requested more would wait for them until its deadline and block all others.
3. `enter_queue` waits for the place of the group in the queue of claims of its server.
4. `GivingWay` ends unrated groups because a user's request waits. In the rating modes a group holds
   its episodes until it is rated, and a batch has a limited number of them. No user waits for a
   rater: for each request that waits for episodes one answered group ends, those with votes first
   (a rated one loses the rest of its time for undo), then the oldest, with the fallback of the
   mode; and all of them while the weight update waits for them. A group that a rater has on screen
   is kept for a short time as long as another one can end instead. The requests of the mock user
   end no group while `rating.mock_waits` is set: their deadlines move for as long as groups wait
   for a rating.
5. `claim` claims all episodes of a group or none, `refill_slot` a fresh one for a failed one.
6. `submit` sends the rewards, which its caller has made durable, and `release` returns episodes:
   see `ajet_swarm.episodes.ends`.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ajet_swarm.common.tasks import run_all
from ajet_swarm.common.text import one_line
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.episodes.queue import QueueEntry
from ajet_swarm.protocol.schemas import EndKind, EndOutcome, WireOutput
from core.dialects.errors import ApiError, bad_request
from core.events import ClaimedEpisode, ClaimIntended, ClaimsReturned, EndedEpisode, EpisodeAborted
from core.events.alerts import params_of
from core.settings import Settings
from proxy.alerts import clear_alert, show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.dialects.request import ChatRequest
from proxy.groups.run import Candidate, Run
from proxy.servers.facts import CONTENDED_AFTER, ROLLING_POST, ServerFacts, identified

MOST_CHOICES = 16
"""Maximum number of choices (`n`) of a request; each is an episode, and more would take a whole
batch."""
_FILES = ("file", "input_file", "input_audio", "audio_url", "video_url")
CALM = 20
"""Number of consecutive groups that fit after which the alert about oversized ones is cleared."""
AGAIN = 2.0
"""Seconds after which another group ends for a request that still waits: the server may offer the
episodes of the first one late, or another client may take them."""
ACTIVE = 20.0
"""Seconds after his last key during which the group that a rater has on screen is kept."""
KEPT = 10.0
"""Maximum number of seconds for which a group is kept."""


def capacity_of(server: ServerHandle) -> int | None:
    """Return the maximum number of episodes of a server at a time; None while unknown.

    Source: a trainer keeps at most one batch of episodes open (protocol section 7).
    """
    if server.most_episodes is not None:
        return server.most_episodes
    pool = server.watcher.pool
    if pool is None or pool.stale or not pool.completed_episode_target:
        return None
    return max(pool.completed_episode_target, pool.repeat)


def check_servable(request: ChatRequest, server: ServerHandle, settings: Settings) -> None:
    """Refuse a request that its server cannot answer: an image, a file, too many choices.

    Args:
        request: The request.
        server: Its server; in observe mode the upstream decides on images and files.
        settings: Names the servers whose models accept images.

    Raises:
        ApiError: A 400 with the reason.
    """
    if server.trains:
        if request.shown is not None:
            _check_vision(server, settings)
        _check_files(server, request.messages)
    if request.n > 1:
        capacity = capacity_of(server)
        most = MOST_CHOICES if capacity is None else min(MOST_CHOICES, capacity)
        if refusal := too_many_choices(request.n, most):
            raise refusal


def _check_vision(server: ServerHandle, settings: Settings) -> None:
    known = settings.server.get(server.name)
    name = one_line(server.name, 60)
    # Only the embedded engine reports its window.
    own = server.info.context is not None or settings.servers().get(server.name) == "embedded"
    if own:
        text = f"Server `{name}` is the embedded engine, which accepts text only, no images."
    elif known is not None and known.vision:
        return
    else:
        text = (
            f"Server `{name}` accepts text only, but the request contains an image. "
            f"Set servers.{name}.vision: true if its model accepts images."
        )
    raise ApiError(400, None, text, param="messages")


def _check_files(server: ServerHandle, messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse files, audio and video after the last answer: a server that trains drops them."""
    for back, message in enumerate(reversed(messages)):
        if back and message.get("role") == "assistant":  # the last one is the answer's beginning
            return
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and (kind := part.get("type")) in _FILES:
                name = one_line(server.name, 60)
                text = f"Server `{name}` does not accept content parts of type '{kind}'."
                raise ApiError(400, None, text, param="messages")


def too_many_choices(requested: int, capacity: int | None) -> ApiError | None:
    """Return vLLM's 400 for an `n` that is too large; None if it is not."""
    if capacity is None or requested <= capacity:
        return None
    text = f"n must be at most {capacity}, got {requested}. (parameter=n, value={requested})"
    return bad_request(text, "n")


def fit_to_capacity(run: Run) -> ApiError | None:
    """Reduce the number of candidates of a run to what its server has, and raise an alert.

    Returns:
        The error for the client if its own `n` is too large.
    """
    context, server = run.context, run.facts.server
    capacity = capacity_of(server)
    key = f"room:{server.name}"
    if capacity is None or run.slots.n <= capacity:
        run.facts.fitting += 1
        if run.facts.fitting >= CALM or (
            capacity is not None and capacity >= run.facts.not_fitting
        ):
            clear_alert(context.bus, key)
        return None
    if refusal := too_many_choices(run.request.n, capacity):
        return refusal
    run.facts.fitting, run.facts.not_fitting = 0, run.slots.n
    params = params_of("room", server=server.name, candidates=run.slots.n, room=capacity)
    show_alert(context.bus, key, params)
    run.slots.n = capacity
    return None


# --- the queue -----------------------------------------------------------------------------------


async def enter_queue(run: Run) -> None:
    """Wait until the run may claim; its place is free once it holds no episode.

    Raises:
        TimeoutError: Its place did not come before the deadline of the run.
    """
    if run.entry is not None and run.entry.inside:
        return
    use = run.request.connection
    arrived = run.opened_at - (use.lag or 0.0)
    queue = run.facts.server.claimer.queue
    size = run.slots.n if run.task.kind == "eval" else max(run.slots.n, run.facts.known_repeats)
    run.entry = entry = QueueEntry(queue, run.origin, size, run.may_overtake, arrived)
    if entry.take_at_once():
        return
    use.waited = True
    with run.facts.queueing():
        await entry.take(lambda: run.deadline)
    use.waited = not entry.overtook


# --- groups that end for waiting requests --------------------------------------------------------


class GivingWay:
    """Decides which open groups end for waiting requests; one object for all servers."""

    def __init__(self) -> None:
        self._waiting: dict[Run, float] = {}
        """Request that waits -> time on the loop's clock from which a group may end for it."""
        self._timers: dict[Run, asyncio.TimerHandle] = {}
        """Request without episodes -> its next check."""
        self._open: list[Run] = []
        """Groups that are open to the operator in a rating mode."""

    @contextlib.contextmanager
    def waits(self, run: Run) -> Iterator[None]:
        """Context in which the request of `run` waits for episodes; most get them at once."""
        later = run.clocks.loop.call_later
        self._timers[run] = later(CONTENDED_AFTER, self._still_waits, run)
        try:
            yield
        finally:
            self._timers.pop(run).cancel()
            self._waiting.pop(run, None)

    @contextlib.contextmanager
    def open(self, run: Run) -> Iterator[None]:
        """Context in which a group is open to the operator; `run.wake` is set when it must end."""
        if run.context.bus.state.rating_mode == "off":  # then nothing stays open while users wait
            yield
            return
        self._open.append(run)
        try:
            self.press(run.facts)
            yield
        finally:
            self._open.remove(run)

    def press(self, facts: ServerFacts) -> None:
        """End the groups on which the waiting requests of a server depend now."""
        requests = [run for run in self._waiting if run.facts is facts]
        if not requests:
            return
        if facts.server.watcher.current.is_in(ROLLING_POST):
            for run in self._groups(facts):
                _end_group(run)
        elif facts.contended and not facts.recovering:
            for request in requests:
                now = request.clocks.loop.time()
                if now >= self._waiting[request] and (oldest := self._oldest(facts)) is not None:
                    self._waiting[request] = now + AGAIN
                    _end_group(oldest)

    def _still_waits(self, run: Run) -> None:
        """End a group for a request that still waits, or postpone one that waits for votes."""
        self._timers[run] = run.clocks.loop.call_later(AGAIN, self._still_waits, run)
        if not _waits_for_votes(run):
            self._waiting.setdefault(run, 0.0)
            self.press(run.facts)
        elif self._groups(run.facts):
            for waiter in run.answer.waiters:
                waiter.limit += AGAIN
                waiter.postpone(AGAIN)

    def _groups(self, facts: ServerFacts) -> list[Run]:
        """Return the open groups whose own users do not wait, those with votes first, then by
        age."""
        groups = [
            run
            for run in self._open
            if run.facts is facts and run.answer.final is not None and not run.votes.gives_way
        ]
        return sorted(groups, key=lambda run: (not run.votes.ballots, run.opened_at))

    def _oldest(self, facts: ServerFacts) -> Run | None:
        """Return the group that ends next; record which ones are kept for their raters."""
        groups = self._groups(facts)
        chosen = next((run for run in groups if not _is_kept(run)), None)
        if chosen is None:
            return groups[0] if groups else None
        for kept in groups[: groups.index(chosen)]:
            if not kept.votes.kept_until:
                kept.votes.kept_until = kept.context.clock() + KEPT
                kept.wake.set()
        return chosen


def rows_wait(context: ProxyContext, runs: Iterable[Run], servers: Collection[ServerFacts]) -> bool:
    """Return whether a row of the mock user, sent now, would wait for votes, so that it must not be
    sent yet.

    Args:
        context: The proxy's shared parts.
        runs: The open groups of all servers.
        servers: The facts of all servers; the row may be for any of them.
    """
    if context.bus.state.rating_mode == "off" or not context.settings.rating.mock_waits:
        return False
    runs = list(runs)
    sent = {run.task.row.row_id for run in runs if run.task.row is not None}
    rows = 1 + context.rows.outstanding(sent)
    by_server = [(facts, [run for run in runs if run.facts is facts]) for facts in servers]
    return bool(by_server) and all(_is_full_of_unrated(*server, rows) for server in by_server)


def _is_full_of_unrated(facts: ServerFacts, runs: list[Run], rows: int) -> bool:
    """Return whether the last of `rows` new groups of a server would wait for episodes that unrated
    groups hold."""
    if not any(run.phase == "AWAITING_RATING" and run.votes.rating is None for run in runs):
        return False
    if facts.contended or facts.server.watcher.current.is_in(ROLLING_POST):
        return True
    context = runs[0].context
    room = capacity_of(facts.server)
    needed = rows * max(facts.known_repeats, context.settings.proxy.repeats)
    return room is not None and sum(run.slots.n for run in runs) + needed > room


def _end_group(run: Run) -> None:
    run.votes.gives_way = True
    run.wake.set()


def _waits_for_votes(run: Run) -> bool:
    """Return whether it ends no open group: a row of the mock user, or asked by the operator."""
    mock_waits = run.context.settings.rating.mock_waits
    is_row = run.task.row is not None and bool(run.task.row.mock_id)
    return run.request.waits_for_votes or (is_row and mock_waits)


def _is_kept(run: Run) -> bool:
    """Return whether a rater has the group on screen and is active."""
    now = run.context.clock()
    if run.votes.kept_until and now >= run.votes.kept_until:
        return False
    group = run.context.bus.state.groups.get(run.group_id)
    leases = group.leases if group is not None else []
    return any(now < lease.until and now - lease.key_at < ACTIVE for lease in leases)


# --- the claim -----------------------------------------------------------------------------------

REFILL_WAIT = 10.0
"""Maximum number of seconds that a group waits for a fresh episode while it holds others; a longer
wait would starve other groups."""


async def claim(run: Run, *, durable: bool = True) -> None:
    """Claim all episodes of the run, or none.

    Args:
        run: Its candidates are reset.
        durable: Commit the intent first. The commit puts the open group on file: after a kill the
            next start lets claims wait for its clean-up and names it in an alert. A server that
            keeps no episodes needs none. Pass False while the journal is broken: then the run is
            not trained on, and the next start finds its episodes at the server.

    Raises:
        ClaimTimedOut: The episodes were not free before the deadline of the run; none is held.
        JournalError: The intent could not be committed; nothing was claimed.
    """
    run.slots.reset()
    server = run.facts.server
    await identified(server)

    async def intend() -> None:
        event = ClaimIntended(
            server=server.name,
            group_id=run.group_id,
            n=run.slots.n,
            discard_timeout=run.slots.discard_timeout,
        )
        if durable:
            await run.context.bus.publish_committed(event)
        else:
            run.context.bus.publish(event)

    claimed = await server.claimer.claim_group(
        run.slots.n,
        episode_type=run.task.kind,
        discard_timeout=run.slots.discard_timeout,
        deadline=lambda: run.deadline,
        entry=run.entry,
        on_intent=intend if server.intent_is_durable else None,
        on_claimed=partial(_record_claim, run),
        on_returned=lambda uuids, cause: _record_return(run, uuids, cause),
    )
    run.events.flush()
    by_uuid = {episode.episode_uuid: episode for episode in claimed}
    for candidate in run.slots.candidates:
        candidate.claimed = by_uuid[candidate.uuid]
        candidate.active_at = candidate.claimed.at
    run.slots.first_claim_at = min([episode.at for episode in claimed])


async def refill_slot(run: Run, candidate: Candidate, deadline: float) -> bool:
    """Claim a fresh episode for one slot of a group that holds others.

    Args:
        run: The group.
        candidate: The slot; it holds no episode.
        deadline: On the clock of the loop.

    Returns:
        False if none was free in time, or the engine is not rolling.
    """
    claimed = await run.facts.server.claimer.refill(
        episode_type=run.task.kind,
        discard_timeout=run.slots.discard_timeout,
        deadline=min(deadline, run.clocks.loop.time() + REFILL_WAIT),
        on_claimed=lambda uuid: _record_claim(run, uuid, candidate),
        on_returned=lambda uuids, cause: _record_return(run, uuids, cause),
    )
    if claimed is None:
        return False
    candidate.claimed = claimed
    candidate.active_at = claimed.at
    return True


def _record_claim(run: Run, uuid: str, slot: Candidate | None = None) -> None:
    if run.closing or (slot is not None and not _is_empty(run, slot)):
        return  # the answer is late: the claimer returns the episode, and no group held it
    is_first = slot is None
    slot = slot or next(candidate for candidate in run.slots.candidates if not candidate.uuid)
    run.slots.record_claim(slot, uuid)
    slot.step = slot.claimed_step = run.facts.server.watcher.current.step
    slot.later_step = None
    slot.training_run = run.context.bus.state.run_of(run.facts.server.name)
    run.events.add(ClaimedEpisode(slot.index, slot.uuid, slot.attempt))
    run.events.step, run.events.training_run = slot.step, slot.training_run
    if is_first and all(candidate.uuid for candidate in run.slots.candidates):
        expires_at = run.context.clock() + run.slots.discard_timeout
        run.events.flush(expires_at, run.facts.server.info.damping)


def _is_empty(run: Run, slot: Candidate) -> bool:
    """Return whether a refill may fill a slot; a later refill or claim may have done so."""
    return not slot.uuid and any(candidate is slot for candidate in run.slots.candidates)


def _record_return(run: Run, uuids: Sequence[str], cause: str) -> None:
    slots = [candidate for candidate in run.slots.candidates if candidate.uuid in uuids]
    if not slots:
        return
    run.events.flush()
    for candidate in slots:
        run.slots.release(candidate)
        candidate.attempt = 0
    run.context.bus.publish(
        ClaimsReturned(
            server=run.facts.server.name,
            group_id=run.group_id,
            episode_uuids=tuple(uuids),
            cause=cause,
        )
    )
    if not run.closing:  # its place is free once the server has confirmed the returns
        ends = run.facts.server.claimer.ends
        run.slots.give_back(ends.holdings.returned(uuids, ends.timeout))


# --- the end or return ---------------------------------------------------------------------------

ACCEPTED = frozenset({"ended", "recorded"})
"""Outcomes of a reward that the server has accepted."""

_OUTCOMES = dict.fromkeys(EndKind, "refused") | {
    EndKind.ENDED: "ended",
    EndKind.RECORDED: "recorded",
    EndKind.NOT_CLAIMED: "expired",
    EndKind.OTHER_CLIENT: "expired",
    EndKind.EXPIRED: "expired",
    EndKind.UNKNOWN_OUTCOME: "unknown",
}


def named(outcome: EndOutcome) -> tuple[str, str]:
    """Return the outcome of an end as in `EndedEpisode`, and its reason as text."""
    name = _OUTCOMES[outcome.kind]
    if name in ACCEPTED:
        return name, ""
    never = "never sent: " if outcome.kind is EndKind.UNREACHABLE else ""
    return name, never + outcome.text


async def submit(run: Run, rewards: dict[int, float]) -> list[str]:
    """Send the sealed rewards, all at once.

    Returns:
        One outcome for each reward, as in `EndedEpisode`.
    """
    return await run_all(
        *[_end(run, candidate, rewards[candidate.index]) for candidate in run.slots.usable]
    )


async def _end(run: Run, candidate: Candidate, reward: float) -> str:
    output = WireOutput(reward=reward, metadata=run.task.metadata)
    ends = run.facts.server.claimer.ends
    outcome, text = named(await ends.end(_holding(run, candidate), run.task.id, output))
    run.events.add(EndedEpisode(candidate.index, outcome, text))
    run.slots.release(candidate)
    return outcome


async def release(run: Run, candidates: Iterable[Candidate], reason: str) -> None:
    """Return the episodes of these candidates; one whose end is in flight is left to that end."""
    run.events.flush()
    holding = [candidate for candidate in candidates if candidate.uuid]
    server = run.facts.server
    away = server.claimer.ends.server_is_away
    holdings = [_holding(run, candidate) for candidate in holding]
    returned = await server.claimer.ends.abort(holdings, reason)
    for candidate in holding:
        uuid, why = candidate.uuid, ""
        if candidate.ending:
            why = " (its end may have arrived)"
        elif away:
            why = " (the server is not there)"
        elif uuid not in returned:
            why = " (the server had taken it back)"
        run.slots.release(candidate)
        run.context.bus.publish(
            EpisodeAborted(
                server=server.name,
                group_id=run.group_id,
                index=candidate.index,
                episode_uuid=uuid,
                reason=reason + why,
            )
        )


def _holding(run: Run, candidate: Candidate) -> Holding:
    """Return the holding of a candidate, with what the group knows of its calls."""
    holding = candidate.holding
    assert holding is not None
    holding.doubtful = candidate.lost
    holding.lifetime = 2 * run.slots.discard_timeout
    if candidate.active_at:
        holding.active_after = candidate.active_at - holding.claimed_on_wall
    return holding
