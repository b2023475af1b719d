"""Sampling of probe prompts: from a snapshot of the embedded engine, or by eval episodes.

A sampler answers with one set of weights only. When these weights are replaced, or the server stops
answering, it raises `MeasurementCut`, and the measurement has no verdict.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ajet_swarm.api.chat import VLLM_OVERFLOW
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import run_all
from ajet_swarm.common.text import content_text
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.protocol.errors import (
    ChatError,
    ChatErrorKind,
    ClaimTimedOut,
    ServerRefusal,
    SwarmError,
)
from ajet_swarm.protocol.schemas import Claimed, EngineState
from ajet_swarm.runtime import SYSTEM, Chance
from proxy.context import ServerHandle
from proxy.groups.generate import incomplete, was_cut
from proxy.servers.extensions import NotOffered, ask, engine_info, offers
from proxy.servers.facts import ROLLING, ServerFacts

SNAPSHOT = "/ajetc/snapshot"
SAMPLE = "/ajetc/sample"
SYNCING = frozenset({EngineState.ROLLING_POST, EngineState.WEIGHT_SYNCING})
PARALLEL = 4
"""Maximum number of eval episodes that a measurement holds."""
IDLE_LIMIT = 120.0
"""Seconds after which a server takes back an idle eval episode of a killed proxy."""
REFUSALS = 40
"""Number of claims for one answer that may be refused."""
REFUSED_PAUSE = (0.25, 0.5)
"""Seconds between a refused claim and the next one, drawn at random."""
CHAT_LIMIT = 300.0
"""Maximum seconds of one answer."""
SNAPSHOT_LIMIT = 900.0
"""Maximum seconds of all answers of a snapshot to one prompt: a large model on a processor, which
answers users and is trained meanwhile, takes minutes."""
TRIES = 3
"""Number of episodes that one answer may use."""
USERS_PAUSE = 0.05
"""Seconds between two checks whether a user waits."""
CUTS = 2
"""Number of consecutive cut measurements after which the next one is smaller."""
MARGIN = 0.8
"""Share of the answers that fit which the next measurement takes."""
_RETURNED = "an answer of the probe set"
"""Reason of the returns of eval episodes, for the log."""

Message = Mapping[str, Any]
UserWaits = Callable[[], bool]
"""Return whether a user's request waits for episodes."""


class MeasurementCut(AjetError):
    """A measurement cannot be completed with the weights that it began with; names the cause."""


class RollingEnded(MeasurementCut):
    """The engine left ROLLING for a weight sync before all answers were sampled.

    `MeasurementService` takes fewer answers in the next measurement.
    """


class PromptTooLong(SwarmError):
    """A probe prompt is longer than the window of the model; it is left out."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to a probe prompt."""

    message: Mapping[str, Any]
    finish_reason: str = ""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The text of the answer; empty for tool calls alone."""
        return content_text(self.message.get("content"))


class Sampler(Protocol):
    """Source of answers by one set of weights."""

    step: int | None
    """Global step of the weights."""
    usual: int
    """Number of answers to each prompt that a measurement takes unless it is set."""

    async def sample(
        self, messages: Sequence[Message], n: int
    ) -> tuple[list[Sample], Sample | None]:
        """Return `n` answers at the temperature of the run, and the one of greatest probability.

        The latter is None if the server cannot sample it.

        Raises:
            MeasurementCut: The weights were replaced, or the server does not answer.
            PromptTooLong: The prompt is longer than the window of the model.
            SwarmError: The server refuses the prompt or fails to answer it.
        """
        ...

    async def close(self) -> None:
        """Give back every episode."""
        ...


async def open_sampler(
    server: ServerHandle, facts: ServerFacts, user_waits: UserWaits, chance: Chance = SYSTEM.chance
) -> Sampler:
    """Return a sampler of the present weights of a server.

    Raises:
        MeasurementCut: The engine is not ROLLING, or does not answer.
    """
    try:
        if await offers(server, SNAPSHOT) and (await engine_info(server.client)).snapshots:
            return SnapshotSampler(server, await ask(server, _TakenSnapshot, SNAPSHOT, {}), chance)
    except NotOffered:
        pass
    except SwarmError as error:
        raise MeasurementCut(f"the server does not answer: {error}", server.name) from error
    return EpisodeSampler(server, facts, user_waits, chance)


# --- snapshots -----------------------------------------------------------------------------------


class _TakenSnapshot(msgspec.Struct, frozen=True):
    snapshot: str
    step: int


class _Samples(msgspec.Struct, frozen=True):
    answers: tuple[Sample, ...]
    truncated: bool = False


class SnapshotSampler:
    """Sampler of a copy of the embedded engine's weights: training goes on meanwhile.

    It holds no episode, and the engine samples users' answers first, so no user waits for it.
    """

    usual = 16

    def __init__(self, server: ServerHandle, snapshot: _TakenSnapshot, chance: Chance) -> None:
        self._chance = chance
        self.step: int | None = snapshot.step
        self._server = server
        self._id = snapshot.snapshot

    async def sample(
        self, messages: Sequence[Message], n: int
    ) -> tuple[list[Sample], Sample | None]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        body = {
            "snapshot": self._id,
            "messages": messages,
            "n": n,
            "seed": self._chance.random.getrandbits(31),
            "likeliest": True,
        }
        where = self._server.name
        try:
            reply = await ask(self._server, _Samples, SAMPLE, body, limit=SNAPSHOT_LIMIT)
        except SwarmError as error:
            if isinstance(error, ServerRefusal) and VLLM_OVERFLOW in error.text:
                raise _too_long(where) from error
            raise MeasurementCut(f"the engine ended the snapshot: {error}", where) from error
        if reply.truncated:
            raise _too_long(where)
        if len(reply.answers) != n + 1:
            raise MeasurementCut(f"{len(reply.answers)} answers for {n + 1}", where)
        seconds = loop.time() - began
        *samples, likeliest = (replace(answer, seconds=seconds) for answer in reply.answers)
        return samples, likeliest

    async def close(self) -> None:
        """Do nothing: the engine drops its oldest snapshot by itself."""


# --- eval episodes -------------------------------------------------------------------------------


@asynccontextmanager
async def eval_episode(server: ServerHandle) -> AsyncIterator[Claimed]:
    """Context with an eval episode, which is given back at its end.

    One claim is sent, and it never queues: no user waits behind it, and a refusal does not count as
    a group that waits for episodes. When cancelled during the claim, it ends at once; the episode
    is given back later if the claim is granted.

    Raises:
        ClaimTimedOut: No episode is free, or the server refuses it for another reason.
    """
    ends, held = server.claimer.ends, list[Holding]()

    def hold(uuid: str) -> None:
        held.append(ends.holdings.by_uuid[uuid])

    granted = await server.claimer.claim_one("eval", IDLE_LIMIT, hold)
    if not isinstance(granted, Claimed):
        raise ClaimTimedOut(1, 0, granted.kind.value, server.name)
    try:
        yield granted
    finally:
        await ends.abort(held, _RETURNED)


class EpisodeSampler:
    """Sampler by eval episodes, which any swarm server has; one episode for each answer.

    Claims are sent in ROLLING alone, while no user waits; when the engine leaves ROLLING, all
    episodes are given back and the measurement is cut. Prompts are sampled one after the other.
    """

    usual = 8

    def __init__(
        self,
        server: ServerHandle,
        facts: ServerFacts,
        user_waits: UserWaits,
        chance: Chance = SYSTEM.chance,
    ) -> None:
        self._chance = chance
        self._server = server
        self._facts = facts
        self._user_waits = user_waits
        status = server.watcher.current
        self.step: int | None = status.step
        self._left = False
        self._scope: asyncio.Timeout | None = None
        """Scope of the answers in progress; it ends when the engine leaves ROLLING."""
        self._places = asyncio.Semaphore(PARALLEL)
        self._remove = server.watcher.add_listener(self._on_status)
        self._on_status(status)

    async def sample(
        self, messages: Sequence[Message], n: int
    ) -> tuple[list[Sample], Sample | None]:
        """See `Sampler.sample`; swarm servers ignore the temperature of a request."""
        try:
            async with asyncio.timeout(None) as self._scope:
                return await run_all(*(self._one(messages) for _ in range(n))), None
        except TimeoutError as error:
            self._check()
            raise MeasurementCut("no answer in time", self._server.name) from error
        finally:
            self._scope = None

    async def close(self) -> None:
        """Claim no further episode; those of a cancelled caller are given back without it."""
        self._remove()
        self._leave()

    def _on_status(self, status: ServerStatus) -> None:
        if not status.reachable or not status.is_in(ROLLING) or status.step != self.step:
            self._leave()

    def _leave(self) -> None:
        self._left = True
        if self._scope is not None:
            self._scope.reschedule(0.0)

    async def _one(self, messages: Sequence[Message]) -> Sample:
        async with self._places:
            tries, refusals = TRIES, REFUSALS
            while True:
                await self._until_allowed()
                failure: SwarmError
                try:
                    return await self._answer(messages)
                except ClaimTimedOut as error:
                    failure = error
                    refusals -= 1
                    self._server.watcher.nudge()
                    await asyncio.sleep(self._chance.uniform(*REFUSED_PAUSE))
                except ChatError as error:
                    if error.kind is ChatErrorKind.OVERFLOW:
                        raise _too_long(self._server.name) from error
                    failure = error
                    tries -= 1
                self._check()
                if not tries or not refusals:
                    raise failure

    async def _until_allowed(self) -> None:
        while not self._left and (  # noqa: ASYNC110 - there is no event for it
            self._facts.contended or self._user_waits()
        ):
            await asyncio.sleep(USERS_PAUSE)
        self._check()

    def _check(self) -> None:
        if self._left:
            status = self._server.watcher.current
            synced = status.is_in(ROLLING) and status.step != self.step
            cut = RollingEnded if synced or status.is_in(SYNCING) else MeasurementCut
            raise cut(
                f"the engine left step {self.step} before the look was complete:"
                f" {status.display_state.value}",
                self._server.name,
            )

    async def _answer(self, messages: Sequence[Message]) -> Sample:
        loop = asyncio.get_running_loop()
        async with eval_episode(self._server) as claimed:
            began = loop.time()
            body = msgspec.json.encode({"messages": messages})
            answer = await self._server.client.chat(claimed, body, timeout=CHAT_LIMIT)
            if was_cut(answer):
                raise _too_long(self._server.name)
            if fault := incomplete(answer):
                raise ChatError(ChatErrorKind.UPSTREAM, fault)
            seconds = loop.time() - began
            return Sample(
                message=answer.message, finish_reason=answer.finish_reason, seconds=seconds
            )


def _too_long(server: str) -> PromptTooLong:
    return PromptTooLong(
        "the prompt is longer than the window of the model", server, "Shorten or remove it"
    )


# --- how many answers fit ------------------------------------------------------------------------


class SampleSize:
    """The number of answers for each prompt of the next measurement.

    Without snapshots, a measurement ends with its ROLLING phase. After two in a row that were cut,
    the next ones take as many answers for each prompt as fitted. The number follows from earlier
    ones only, never from the answers of the same measurement, so its interval stays valid.

    Args:
        samples: Setting `probe.samples`; it is never changed where it is not 0.

    Attributes:
        samples: Answers for each prompt of the next measurement; 0 as many as are usual.
        done: Number of answers of the measurement in progress, so far.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.done = 0
        self._fixed = samples > 0
        self._prompts = self._planned = 0
        self._cuts: list[int] = []
        """Number of answers of each cut measurement since the last complete one."""

    def begin(self, prompts: int, samples: int) -> None:
        """Begin a measurement of a number of prompts with `samples` answers for each."""
        if prompts != self._prompts:
            self._cuts.clear()
        self._prompts, self._planned, self.done = prompts, samples, 0

    def complete(self) -> None:
        """End a complete measurement."""
        self._cuts.clear()

    def cut(self) -> str:
        """End one that a weight sync cut; return what follows from it for the operator."""
        self._cuts.append(self.done)
        answers = f"{self.done} of {self._prompts * self._planned} answers were sampled"
        if len(self._cuts) < CUTS:
            return answers
        fits = int(MARGIN * max(self._cuts))
        samples = min(fits // self._prompts, self._planned - 1)
        if fits < 1:
            return f"{answers}: none fits between syncs. Take a look while no user waits"
        if samples < 1:
            return f"{answers}; use fewer prompts in `probe.file`: about {fits} fit between syncs"
        if self._fixed:
            return f"{answers}; `probe.samples: {samples}` fits between syncs"
        self.samples = samples
        self._cuts.clear()
        plural = "" if samples == 1 else "s"
        return f"{answers}; the next look takes {samples} answer{plural} for each prompt"
