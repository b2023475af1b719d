"""LLM calls of episodes: from a key and a request to an answer that comes in pieces."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NoReturn, Self

from engine.interface import Completion, PolicyBackend, Prompt, SamplingParams, UnknownTokenError
from engine.llm import real_server_quirks
from engine.llm.bare_prompts import bare_prompt, render_messages
from engine.llm.chat import ChatRequest, answer_limit, sampling_params
from engine.server.episode_keys import EpisodeKey
from engine.server.lifecycle import ROLLING, Engine, EngineError, EngineStatus
from engine.server.pool import Episode
from engine.server.timelines import repair_prompt

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""Status of an answer nobody waits for; never seen by a client."""

WaitForDisconnect = Callable[[], Coroutine[Any, Any, None]]
"""Waits until the client has left."""


class LiveCall:
    """One call while it is answered. Use as a context manager; leaving it frees the sampler.

    Args:
        engine: Rolling.
        episode: Claimed; the answer is added to its completions.
        draw: Draws the answer; given what to call with each new piece of text.
        gone: Waits until the client has left.
    """

    def __init__(
        self,
        engine: Engine,
        episode: Episode,
        draw: Callable[[Callable[[str], None]], Coroutine[Any, Any, Completion | Exception]],
        gone: WaitForDisconnect,
    ) -> None:
        self._engine, self._episode, self._turn = engine, episode, episode.turn
        self._pieces: deque[str] = deque()
        self._news = asyncio.Event()
        self._draw = engine.tasks.spawn(draw(self._hear), f"call {episode.uuid}")
        self._leaving = engine.tasks.spawn(gone(), f"caller {episode.uuid}")
        for task in (self._draw, self._leaving):
            task.add_done_callback(lambda _task: self._news.set())
        episode.calls.add(self._draw)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the sampler and whoever waits for the client to leave."""
        self._leaving.cancel()
        self._draw.cancel()
        self._episode.calls.discard(self._draw)
        if self._episode.turn == self._turn:
            self._episode.active_at = self._engine.clock()

    async def piece(self, patience: float) -> str | None:
        """The next piece of text; None at the end, an empty one when there was none for `patience`
        seconds."""
        while not self._pieces:
            if self._draw.done() or self._leaving.done():
                return None
            self._news.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                return ""
        return self._pieces.popleft()

    @property
    def failed(self) -> bool:
        """There will be no answer."""
        if not self._draw.done() or self._draw.cancelled():
            return self._leaving.done() or self._draw.cancelled()
        return isinstance(self._draw.result(), Exception)

    async def answer(self) -> Completion:
        """The whole answer; it now counts as a call of the episode.

        Raises:
            Refused: 400 the prompt holds an unknown token id, 404 the episode went meanwhile,
                499 the client left, 500 the policy failed.
        """
        await asyncio.wait({self._draw, self._leaving}, return_when=asyncio.FIRST_COMPLETED)
        finished = self._draw.done()
        if self._episode.turn != self._turn or (finished and self._draw.cancelled()):
            raise_gone(self._engine, self._episode.uuid)
        if not finished:
            raise EngineError(CLIENT_LEFT, "The client left.")
        drawn: Completion | Exception = self._draw.result()
        if isinstance(drawn, EngineError):
            raise drawn
        if isinstance(drawn, Exception):
            self._engine.verbose.add("chat", f"sampling failed: {drawn!r}", logging.ERROR)
            raise EngineError(500, f"The policy failed to answer: {drawn!r}")
        self._episode.completions.append(drawn)
        return drawn

    def _hear(self, text: str) -> None:
        self._pieces.append(text)
        self._news.set()


class CallStarter:
    """The LLM routes' side of an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def model(self) -> str:
        """Name of what answers, as answers have it."""
        policy = self.engine.backend.policy
        return policy.name if policy is not None and not self.engine.faithful else "unknown"

    def begin(self, key: EpisodeKey, request: ChatRequest, gone: WaitForDisconnect) -> LiveCall:
        """Begin one call of an episode.

        Args:
            key: The episode's key.
            request: The call.
            gone: Waits until the client has left; the answer is then not drawn to its end.

        Raises:
            Refused: 401 not this episode's key, 404 the episode or the engine moved on, 400 the
                conversation cannot be rendered.
        """
        episode, policy = self._callable(key)
        prompt, params = self._prepare(episode, policy, request)
        engine = self.engine
        episode.call_count += 1
        engine.clients.refresh(episode.client)

        async def draw(hear: Callable[[str], None]) -> Completion | Exception:
            if not engine.faithful:
                return await _draw(policy, prompt, params, hear)
            if prompt.truncated:
                return real_server_quirks.overflow(prompt)
            async with episode.serial:
                return await _draw(policy, prompt, params, hear)

        return LiveCall(engine, episode, draw, gone)

    def _callable(self, key: EpisodeKey) -> tuple[Episode, PolicyBackend]:
        engine = self.engine
        policy = engine.backend.policy
        episode = engine.pool.find(key.episode_uuid)
        if engine.status not in ROLLING or policy is None or episode is None:
            raise_gone(engine, key.episode_uuid)
        if not (key.opens(episode.address) or engine.faithful):
            raise EngineError(401, "Invalid authorization data")
        if episode.status != "claimed":
            raise_gone(engine, key.episode_uuid)
        return episode, policy

    def _prepare(
        self, episode: Episode, policy: PolicyBackend, request: ChatRequest
    ) -> tuple[Prompt, SamplingParams]:
        engine = self.engine
        job = engine.require_job()
        if engine.faithful:
            request = real_server_quirks.strip_request(request)
        limit = answer_limit(job, policy.context, request)
        if request.ajetc_prompt is not None:
            prompt = bare_prompt(policy, request.ajetc_prompt, limit)
        else:
            prompt = render_messages(policy, request.conversation(), request.offered_tools(), limit)
        if prompt.truncated and engine.strict_context:
            raise EngineError(
                400,
                f"This model's maximum context length is {policy.context} tokens, and the messages "
                f"with the {limit} tokens of the answer are longer. Please reduce the length of "
                "the messages.",
            )
        params = sampling_params(request, job, episode.type, limit)
        return self._mended(episode, policy, prompt, params), params

    def _mended(
        self, episode: Episode, policy: PolicyBackend, prompt: Prompt, params: SamplingParams
    ) -> Prompt:
        """The prompt with the ids of earlier answers as they were drawn."""
        if prompt.truncated or not episode.completions:
            return prompt
        mended = repair_prompt(prompt.tokens, episode.completions, policy.decode)
        if not mended.drifts:
            return prompt
        fits = len(mended.tokens) + 1 <= policy.context
        self.engine.drift.note(mended.drifts, repaired=fits)
        self.engine.verbose.add(
            "timelines",
            f"episode {episode.uuid}: {mended.drifts} earlier answers came back in other tokens "
            f"than were drawn; {'repaired' if fits else 'left, the window is too small'}",
        )
        return Prompt(mended.tokens) if fits else prompt


def raise_gone(engine: Engine, name: str) -> NoReturn:
    """Raises Refused 404: why a call of the episode cannot be answered any more."""
    if engine.status not in ROLLING:
        raise EngineError(
            404,
            f"The server is not in {EngineStatus.ROLLING} status. "
            f"Current status: [{engine.status}].",
        )
    if engine.pool.find(name) is None:
        raise EngineError(404, f"Episode {name} not found.")
    raise EngineError(404, f"Episode {name} is not claimed any more.")


async def _draw(
    policy: PolicyBackend, prompt: Prompt, params: SamplingParams, hear: Callable[[str], None]
) -> Completion | Exception:
    try:
        return await policy.sample(prompt, params, hear)
    except UnknownTokenError as error:  # of a prompt of token ids: the request is wrong
        return EngineError(400, str(error))
    except Exception as error:  # a backend's fault is one failed call, told to its caller
        log.error("sampling", exc_info=error)
        return error
