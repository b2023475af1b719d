"""Sampling of probe prompts: from a snapshot of the embedded engine, or by eval episodes.

A sampler answers with one set of weights only. When these weights are replaced, or the server stops
answering, it raises `LookCut`, and the look has no verdict.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ajet_swarm.api.outcomes import VLLM_OVERFLOW, ChatAnswer
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import run_all
from ajet_swarm.common.text import content_text
from ajet_swarm.protocol.errors import (
    ChatError,
    ChatErrorKind,
    ClaimTimedOut,
    ServerRefusal,
    SwarmError,
)
from ajet_swarm.protocol.schemas import EngineState
from ajet_swarm.runtime import SYSTEM, Chance
from proxy.context import ServerHandle
from proxy.evaluation.episodes import EvalEpisodes, NotGranted
from proxy.groups.generate import incomplete, was_cut
from proxy.servers.extensions import NotOffered, ask, engine_info, offers
from proxy.servers.facts import ROLLING, ServerFacts

SNAPSHOT = "/ajetc/snapshot"
SAMPLE = "/ajetc/sample"
SYNCING = frozenset({EngineState.ROLLING_POST, EngineState.WEIGHT_SYNCING})
PARALLEL = 4
"""Maximum number of eval episodes that a look holds."""
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

Message = Mapping[str, Any]


class LookCut(AjetError):
    """A look cannot be completed with the weights that it began with; names the cause."""


class RollingEnded(LookCut):
    """The engine left ROLLING for a weight sync before all answers were sampled.

    `ProgressService` takes fewer answers in the next look.
    """


class PromptTooLong(SwarmError):
    """A probe prompt is longer than the window of the model; the look leaves it out."""


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
    """Number of answers to each prompt that a look takes unless it is set."""

    async def sample(
        self, messages: Sequence[Message], n: int
    ) -> tuple[list[Sample], Sample | None]:
        """Return `n` answers at the temperature of the run, and the one of greatest probability.

        The latter is None if the server cannot sample it.

        Raises:
            LookCut: The weights were replaced, or the server does not answer.
            PromptTooLong: The prompt is longer than the window of the model.
            SwarmError: The server refuses the prompt or fails to answer it.
        """
        ...

    async def close(self) -> None:
        """Give back every episode."""
        ...


UserWaits = Callable[[], bool]
"""Return whether a user's request waits for episodes."""


async def open_sampler(
    server: ServerHandle, facts: ServerFacts, user_waits: UserWaits, chance: Chance = SYSTEM.chance
) -> Sampler:
    """Return a sampler of the present weights of a server.

    Raises:
        LookCut: The engine is not ROLLING, or does not answer.
    """
    try:
        if await offers(server, SNAPSHOT):
            return await SnapshotSampler.open(server, chance)
    except NotOffered:
        pass
    except SwarmError as error:
        raise LookCut(f"the server does not answer: {error}", server.name) from error
    return EpisodeSampler(server, facts, user_waits, chance)


class _SnapshotReply(msgspec.Struct, frozen=True):
    snapshot: str
    step: int


class _SampledAnswer(msgspec.Struct, frozen=True):
    message: dict[str, Any]
    finish_reason: str = ""


class _Samples(msgspec.Struct, frozen=True):
    answers: tuple[_SampledAnswer, ...]
    truncated: bool = False


class SnapshotSampler:
    """Sampler of a copy of the embedded engine's weights: training goes on meanwhile.

    It holds no episode, and the engine samples users' answers first, so no user waits for it.
    """

    usual = 16

    def __init__(self, server: ServerHandle, snapshot: _SnapshotReply, chance: Chance) -> None:
        self._chance = chance
        self.step: int | None = snapshot.step
        self._server = server
        self._id = snapshot.snapshot

    @classmethod
    async def open(cls, server: ServerHandle, chance: Chance = SYSTEM.chance) -> "SnapshotSampler":
        """Take a snapshot of the present weights.

        Raises:
            NotOffered: The model of this engine has no snapshots.
            SwarmError: The engine does not answer.
        """
        if not (await engine_info(server.client)).snapshots:
            raise NotOffered("the model of this engine has no snapshots", server.name)
        snapshot = await ask(server, _SnapshotReply, SNAPSHOT, {})
        return cls(server, snapshot, chance)

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
        try:
            reply = await ask(self._server, _Samples, SAMPLE, body, limit=SNAPSHOT_LIMIT)
        except SwarmError as error:
            if isinstance(error, ServerRefusal) and VLLM_OVERFLOW in error.text:
                raise _too_long(self._server) from error
            raise LookCut(f"the engine ended the snapshot: {error}", self._server.name) from error
        if reply.truncated:
            raise _too_long(self._server)
        if len(reply.answers) != n + 1:
            raise LookCut(f"{len(reply.answers)} answers for {n + 1}", self._server.name)
        seconds = loop.time() - began
        samples = [
            Sample(message=one.message, finish_reason=one.finish_reason, seconds=seconds)
            for one in reply.answers
        ]
        return samples[:n], samples[n]

    async def close(self) -> None:
        """Do nothing: the engine drops its oldest snapshot by itself."""


class EpisodeSampler:
    """Sampler by eval episodes, which any swarm server has; one episode for each answer.

    Claims are sent in ROLLING alone, while no user waits; when the engine leaves ROLLING, all
    episodes are given back and the look is cut.
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
        self._scopes: set[asyncio.Timeout] = set()
        """Scopes of the answers in progress; they end when the engine leaves ROLLING."""
        self._places = asyncio.Semaphore(PARALLEL)
        self._episodes = EvalEpisodes(server, facts, IDLE_LIMIT, "an answer of the probe set")
        self._remove = server.watcher.add_listener(self._on_status)
        self._on_status(status)

    async def sample(
        self, messages: Sequence[Message], n: int
    ) -> tuple[list[Sample], Sample | None]:
        """See `Sampler.sample`; swarm servers ignore the temperature of a request."""
        return await run_all(*(self._one(messages) for _ in range(n))), None

    async def close(self) -> None:
        """Give back every episode."""
        self._remove()
        self._leave()
        await self._episodes.close()

    def _on_status(self, status: ServerStatus) -> None:
        if not status.reachable or not status.is_in(ROLLING) or status.step != self.step:
            self._leave()

    def _leave(self) -> None:
        self._left = True
        for scope in self._scopes:
            scope.reschedule(0.0)

    async def _one(self, messages: Sequence[Message]) -> Sample:
        async with self._places:
            tries, refusals = TRIES, REFUSALS
            failure: AjetError = LookCut("no answer in time", self._server.name)
            while tries and refusals:
                await self._until_allowed()
                try:
                    async with asyncio.timeout(None) as scope:
                        self._scopes.add(scope)
                        try:
                            return await self._answer(messages)
                        finally:
                            self._scopes.discard(scope)
                except TimeoutError:
                    self._check()
                    tries -= 1
                except NotGranted as error:
                    failure = ClaimTimedOut(1, 0, error.kind.value, self._server.name)
                    refusals -= 1
                    self._server.watcher.nudge()
                    await asyncio.sleep(self._chance.uniform(*REFUSED_PAUSE))
                except ChatError as error:
                    if error.kind is ChatErrorKind.OVERFLOW:
                        raise _too_long(self._server) from error
                    failure = error
                    tries -= 1
            self._check()
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
            cut = RollingEnded if synced or status.is_in(SYNCING) else LookCut
            raise cut(
                f"the engine left step {self.step} before the look was complete:"
                f" {status.display_state.value}",
                self._server.name,
            )

    async def _answer(self, messages: Sequence[Message]) -> Sample:
        loop = asyncio.get_running_loop()
        async with self._episodes.hold() as claimed:
            began = loop.time()
            answer = await self._server.client.chat(
                claimed, msgspec.json.encode({"messages": messages}), None, CHAT_LIMIT
            )
            if was_cut(answer):
                raise _too_long(self._server)
            return _sample_of(answer, loop.time() - began)


def _too_long(server: ServerHandle) -> PromptTooLong:
    return PromptTooLong(
        "the prompt is longer than the window of the model", server.name, "Shorten or remove it"
    )


def _sample_of(answer: ChatAnswer, seconds: float) -> Sample:
    """Return the answer of a chat call.

    Raises:
        ChatError: The completion broke off.
    """
    if fault := incomplete(answer):
        raise ChatError(ChatErrorKind.UPSTREAM, fault)
    return Sample(message=answer.message, finish_reason=answer.finish_reason, seconds=seconds)
