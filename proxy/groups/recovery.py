"""Cleans up after a proxy that ended while groups were open: it was killed, or a server did not
answer for as long as it waited. Nothing stays claimed. A reward that the killed proxy may have sent
is sent only if the server still holds its episode for us, which it does not once it has counted it.

The journal records which groups were open and which of them were sealed; the buffer of the server
shows which episodes we still hold. Sealed rewards whose episode still exists are sent; a group
with a committed vote whose episodes all exist is sealed with the rewards of the vote and sent;
everything else is aborted. One alert for each server lists the groups and votes that were lost.

A proxy that is stopped stores the end of its waiting groups for an alert at the next start. The
rating mode that the operator switched to survives stops and kills: the setting `rating.mode` (file
or environment) applies to the first start, and to each start at which its value has changed.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.ends import GRANTED_AGAIN
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.protocol.schemas import WireOutput
from core.commands import MODES
from core.events import EndedEpisode, EpisodeAborted, EpisodesClaimed, EpisodesEnded, GroupClosed
from core.events.alerts import KINDS, AlertParams, params_of
from core.state import Candidate, Group, State
from proxy.alerts import show_alert
from proxy.context import ProxyContext
from proxy.groups.claim import named
from proxy.groups.rating import combined_event, vote_text
from proxy.groups.seal import sealed_by_vote
from proxy.servers.facts import ServerFacts

log = logging.getLogger(__name__)

CAUSE = "the proxy ended"
FINISHED = frozenset({"ended", "recorded", "aborted", "expired"})
"""Phases of candidates that need no clean-up. A failed one may not have been returned yet."""
END_IN_FLIGHT = 5.0
"""Seconds after which the server has processed an end that the killed proxy sent."""
LISTED = 5
"""Number of lost votes that the alert names."""
SENT = frozenset({"ended", "recorded"})
KEY = "recovered"
"""Key of the alert about groups that were waiting."""
_SETTING = "rating_mode_setting"
_WAITED = "waited_at_stop"
_WAITED_GROUPS = "groups_waited_at_stop"


class Recovery:
    """The clean-up of one start."""

    def __init__(
        self, context: ProxyContext, server_facts: Mapping[str, ServerFacts], tasks: Tasks
    ) -> None:
        self.context = context
        self.server_facts = server_facts
        self._tasks = tasks
        self._holdings: dict[tuple[str, str], Holding] = {}
        """Claims of the killed proxy, by server and episode."""

    async def run(self, seconds: float) -> None:
        """Clean up at every server; after `seconds` the clean-up continues in the background.

        Requests are accepted meanwhile; only claims at a server with open groups wait.
        """
        open_groups: dict[str, list[Group]] = {name: [] for name in self.context.servers}
        unconfigured: dict[str, list[Group]] = {}
        for group in self.context.bus.state.open_groups():
            if group.server in open_groups:
                open_groups[group.server].append(group)
                self._adopt(group)
            else:
                unconfigured.setdefault(group.server, []).append(group)
                self._close(group, "FAILED", f"{CAUSE}; {group.server} is no longer configured")
        for name, lost in unconfigured.items():
            params = params_of("recovered", server=name, groups=len(lost), situation="removed")
            self._alert(name, params, lost)
        cleanups = [
            self._tasks.spawn(self._server(self.server_facts[name], groups), f"recover:{name}")
            for name, groups in open_groups.items()
        ]
        if cleanups:
            _, pending = await asyncio.wait(cleanups, timeout=seconds)
            for cleanup in pending:
                log.warning("%s continues in the background", cleanup.get_name())

    def _adopt(self, group: Group) -> None:
        """Hold the episodes of a group, which are no lost claims until it is cleaned up."""
        ends = self.server_facts[group.server].server.claimer.ends
        for candidate in _unfinished(group):
            key = (group.server, candidate.episode_uuid)
            if key not in self._holdings:
                self._holdings[key] = ends.holdings.add(Holding(candidate.episode_uuid))

    async def _server(self, facts: ServerFacts, groups: list[Group]) -> None:
        with contextlib.ExitStack() as claims_wait:
            if groups:
                claims_wait.enter_context(facts.recovery())
            await self._begin(facts, groups, claims_wait)

    async def _begin(
        self, facts: ServerFacts, groups: list[Group], claims_wait: contextlib.ExitStack
    ) -> None:
        name = facts.server.name
        if groups:
            text = "%s: %d groups were open when the proxy ended"
            log.warning(text, name, len(groups))
        held = await facts.server.claimer.ends.held_by_server()
        if held is not None:
            await self._clean(facts, groups, held)
            return
        if groups:  # they stay open until the server answers; an alert gives the reason
            params = params_of("recovered", server=name, groups=len(groups), situation="silent")
            self._alert(name, params, groups)
        # The start does not wait for an unreachable server.
        cleanup = self._clean_later(facts, groups, claims_wait.pop_all())
        self._tasks.spawn(cleanup, f"recover later:{name}")

    async def _clean_later(
        self, facts: ServerFacts, groups: list[Group], claims_wait: contextlib.ExitStack
    ) -> None:
        """Clean up once the server answers; its groups stay open until then."""
        with claims_wait:
            await self._clean_when_reachable(facts, groups)

    async def _clean_when_reachable(self, facts: ServerFacts, groups: list[Group]) -> None:
        pause, ends = 0.1, facts.server.claimer.ends
        while (held := await ends.held_by_server()) is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 5.0)
            await facts.server.watcher.wait_for(lambda status: status.reachable)
        await self._clean(facts, groups, held)

    async def _clean(self, facts: ServerFacts, groups: list[Group], held: set[str]) -> None:
        name, ends = facts.server.name, facts.server.claimer.ends
        mine = {
            uuid
            for uuid in held
            if ends.holdings.by_uuid.get(uuid) is self._holdings.get((name, uuid))
        }
        owners = await asyncio.to_thread(self._owners, groups)
        known = {candidate.episode_uuid for group in groups for candidate in group.candidates}
        counts: Counter[str] = Counter({"stray": len(mine - known)})
        if counts["stray"]:  # an end may take minutes
            ends.search_soon()
        unrated = sum(map(is_unrated, groups))
        cleanups = (
            self._group(facts, group, _owned_by(group, mine, owners), counts) for group in groups
        )
        failures = await asyncio.gather(*cleanups, return_exceptions=True)
        for group, failure in zip(groups, failures, strict=True):
            if failure is not None:  # the group stays open: the next start tries again
                log.error("a group was not cleaned up", exc_info=failure)
                continue
            for candidate in group.candidates:
                if holding := self._holdings.get((name, candidate.episode_uuid)):
                    ends.holdings.forget(holding)
        ends.search_soon()
        self._report(name, unrated, counts, groups)

    def _owners(self, groups: Sequence[Group]) -> dict[str, str]:
        """Map episodes that several groups have claimed to the group that did so last.

        A record keeps its uuid when the server reclaims it, and another group may get it.
        """
        counted = Counter(
            candidate.episode_uuid
            for group in groups
            for candidate in group.candidates
            if candidate.episode_uuid
        )
        shared = {uuid for uuid, count in counted.items() if count > 1}
        last: dict[str, tuple[int, str]] = {}
        for group in groups:
            if shared.isdisjoint(candidate.episode_uuid for candidate in group.candidates):
                continue
            for event in self.context.journal.group_events(group.group_id):
                if not isinstance(event, EpisodesClaimed):
                    continue
                claim = (event.seq, group.group_id)
                for uuid in shared.intersection(episode.episode_uuid for episode in event.episodes):
                    last[uuid] = max(claim, last.get(uuid, claim))
        return {uuid: group_id for uuid, (_, group_id) in last.items()}

    async def _group(
        self, facts: ServerFacts, group: Group, held: set[str], counts: Counter[str]
    ) -> None:
        server = facts.server
        mine = _unfinished(group)
        if group.sealed_at is None:
            live = (
                held if server.intent_is_durable else {candidate.episode_uuid for candidate in mine}
            )
            if group.rating is None and group.votes:  # its time has ended: these votes count
                event = combined_event(server.name, group.group_id, group.votes)
                self.context.bus.publish(event)
            if (seal := sealed_by_vote(group, live)) is not None:
                await self.context.bus.publish_durable(seal)
        sealed = group.sealed_at is not None
        ended = any(candidate.phase in SENT for candidate in group.candidates)
        cleanups = []
        for other in mine:
            if sealed and other.reward is not None and other.phase != "failed":
                cleanups.append(self._end(facts, group, other, other.reward, held))
            else:
                cleanups.append(self._abort(facts, group, other, held))
        outcomes = await asyncio.gather(*cleanups)
        counts.update(outcomes)
        sent = ended or not {*SENT, "unknown"}.isdisjoint(outcomes)
        self._close(group, "DONE" if sealed and sent else "ABORTED", CAUSE)

    async def _end(
        self, facts: ServerFacts, group: Group, candidate: Candidate, reward: float, held: set[str]
    ) -> str:
        server, uuid = facts.server, candidate.episode_uuid
        holding = self._holdings[server.name, uuid]
        if holding.superseded:
            outcome, text = named(GRANTED_AGAIN)
        elif candidate.episode_uuid in held or not server.intent_is_durable:
            metadata = {"task_id": group.task_id, "dataset_task_id": group.dataset_task_id}
            output, ends = WireOutput(reward=reward, metadata=metadata), server.claimer.ends
            outcome, text = named(await ends.end(holding, group.task_id, output, sent_before=True))
        else:
            outcome, text = "unknown", f"{CAUSE}; the server no longer holds the episode"
        ended = EndedEpisode(candidate.index, outcome, text)
        self.context.bus.publish(
            EpisodesEnded(server=server.name, group_id=group.group_id, episodes=(ended,))
        )
        return outcome

    async def _abort(
        self, facts: ServerFacts, group: Group, candidate: Candidate, held: set[str]
    ) -> str:
        server, reason, outcome = facts.server, CAUSE, "given back"
        holding = self._holdings[server.name, candidate.episode_uuid]
        ours = candidate.episode_uuid in held and not holding.superseded
        scored = group.scored_at is not None and not group.abstained
        if ours and scored and group.episode_type == "eval":
            # Its end was sent and may still be processed; a second return may hit another client.
            # What we still hold later is another claim of the killed proxy, or the end was lost.
            server.claimer.ends.holdings.set_aside(candidate.episode_uuid, END_IN_FLIGHT)
            reason, outcome = f"{CAUSE}; its end may have arrived", "unknown"
        elif ours:
            await server.claimer.ends.abort([holding], CAUSE)
        else:
            reason, outcome = f"{CAUSE}; the server no longer held the episode", "gone"
        self.context.bus.publish(
            EpisodeAborted(
                server=server.name,
                group_id=group.group_id,
                index=candidate.index,
                episode_uuid=candidate.episode_uuid,
                reason=reason,
            )
        )
        return outcome

    # --- reports --------------------------------------------------------------------------------

    def _close(self, group: Group, phase: str, cause: str) -> None:
        self.context.bus.publish(
            GroupClosed(server=group.server, group_id=group.group_id, phase=phase, cause=cause)
        )

    def _report(
        self, name: str, unrated: int, counts: Counter[str], groups: Sequence[Group]
    ) -> None:
        if groups:
            votes = _lost_votes(groups)
            params = params_of(
                "recovered",
                server=name,
                groups=len(groups),
                unrated=unrated,
                outcomes={outcome: count for outcome, count in counts.items() if count},
                votes=tuple(votes[:LISTED]),
                votes_lost=len(votes),
            )
            self._alert(name, params, groups)
        elif strays := counts["stray"]:
            self._alert(name, params_of("strays", server=name, episodes=strays), ())

    def _alert(self, name: str, params: AlertParams, groups: Sequence[Group]) -> None:
        log.warning("recovery: %s", params.as_json())
        ids = [group.group_id for group in groups]
        show_alert(self.context.bus, f"recovered:{name}", params, groups=ids, server=name)


def _unfinished(group: Group) -> list[Candidate]:
    """Return the candidates whose episode may still have to be ended or returned."""
    return [
        candidate
        for candidate in group.candidates
        if candidate.episode_uuid and candidate.phase not in FINISHED
    ]


def _lost_votes(groups: Sequence[Group]) -> list[str]:
    """Return the committed votes of groups whose episodes could not be ended."""
    return [
        f"{group.rating.rater or 'somebody'} on {group.group_id} ({vote_text(group.rating)})"
        for group in groups
        if group.rating is not None and group.rating.rewards and group.source != "human"
    ]


def _owned_by(group: Group, held: set[str], owners: Mapping[str, str]) -> set[str]:
    """Return the held episodes without those that another group has claimed since."""
    return {uuid for uuid in held if owners.get(uuid, group.group_id) == group.group_id}


# --- what one run stores for the next -------------------------------------------------------------


def mode_at_start(context: ProxyContext) -> str:
    """Return the initial rating mode; called once, before the start is announced."""
    setting, mode = context.settings.rating.mode, context.bus.state.rating_mode
    if context.journal.meta(_SETTING) != setting:
        context.journal.put_meta(_SETTING, setting)
        return setting
    if mode not in MODES or mode == setting:
        return setting
    log.info("the rating mode stays %s, which the operator chose; the setting is %s", mode, setting)
    return mode


def unrated(state: State) -> list[Group]:
    """Return the unrated groups that wait for the operator, without those in a window of mode
    off."""
    return [group for group in state.waiting() if is_unrated(group)]


def is_unrated(group: Group) -> bool:
    """Return whether a group waits for the operator and is not rated."""
    waits = group.phase == "AWAITING_RATING" and group.awaiting != "window"
    return waits and group.rating is None and not group.votes


def store_waited(context: ProxyContext, waited: Sequence[Group]) -> None:
    """Store for the next start what happened to the groups that waited when the proxy was
    stopped."""
    if not waited:
        return
    sealed = [group for group in waited if group.sealed_at is not None]
    rated = sum(group.source == "human" for group in sealed)
    outcome = params_of(
        "waited", rated=rated, automatic=len(sealed) - rated, dropped=len(waited) - len(sealed)
    )
    context.journal.put_meta(_WAITED_GROUPS, " ".join(group.group_id for group in waited))
    context.journal.put_meta(_WAITED, msgspec.json.encode(outcome).decode())


def alert_waited(context: ProxyContext) -> None:
    """Raise the alert that `store_waited` stored, once."""
    stored = context.journal.meta(_WAITED)
    if not stored:
        return
    context.journal.put_meta(_WAITED, "")
    outcome = msgspec.json.decode(stored, type=KINDS["waited"])
    groups = (context.journal.meta(_WAITED_GROUPS) or "").split()
    show_alert(context.bus, KEY, outcome, groups=groups)
