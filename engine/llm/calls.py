"""LLM calls of episodes: from key and request to an answer that arrives in pieces."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn, Self

from engine.interface import Completion, PolicyBackend, Prompt, SamplingParams, UnknownTokenError
from engine.llm import real_server_quirks
from engine.llm.bare_prompts import bare_prompt, render_messages
from engine.llm.chat import ChatRequest, answer_limit, sampling_params
from engine.llm.context_length import too_long
from engine.server.episode_keys import EpisodeKey
from engine.server.lifecycle import ROLLING, Engine, EngineError, EngineStatus
from engine.server.pool import Episode, EpisodeType
from engine.server.timelines import repair_prompt

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""Status of an answer whose client has disconnected; never sent."""

WaitForDisconnect = Callable[[], Coroutine[Any, Any, None]]
"""Waits until the client has disconnected."""


class LiveCall:
    """One call in progress. Use it as a context manager; leaving it frees the sampler.

    Args:
        engine: Rolling.
        episode: Claimed; the answer is appended to its completions.
        sample: Samples the answer; calls its argument with each new piece of text.
        wait_for_disconnect: Waits until the client has disconnected.
    """

    def __init__(
        self,
        engine: Engine,
        episode: Episode,
        sample: Callable[[Callable[[str], None]], Coroutine[Any, Any, Completion | Exception]],
        wait_for_disconnect: WaitForDisconnect,
    ) -> None:
        self._engine, self._episode, self._turn = engine, episode, episode.turn
        self._pieces: deque[str] = deque()
        self._news = asyncio.Event()
        self._sampling = engine.tasks.spawn(sample(self._on_text), f"call {episode.uuid}")
        self._disconnect = engine.tasks.spawn(wait_for_disconnect(), f"caller {episode.uuid}")
        for task in (self._sampling, self._disconnect):
            task.add_done_callback(lambda _task: self._news.set())
        episode.calls.add(self._sampling)

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
        """Free the sampler and stop waiting for a disconnect."""
        self._disconnect.cancel()
        self._sampling.cancel()
        self._episode.calls.discard(self._sampling)
        if self._episode.turn == self._turn:
            self._episode.active_at = self._engine.clock()

    async def piece(self, patience: float) -> str | None:
        """Return the next piece of text, an empty one after `patience` seconds without any; None at
        the end."""
        while not self._pieces:
            if self._sampling.done() or self._disconnect.done():
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
        """True when there will be no answer."""
        if not self._sampling.done() or self._sampling.cancelled():
            return self._disconnect.done() or self._sampling.cancelled()
        return isinstance(self._sampling.result(), Exception)

    async def answer(self) -> Completion:
        """Return the whole answer and count it as a call of the episode.

        Raises:
            EngineError: 400 the prompt contains an unknown token id, 404 the episode ended
                meanwhile, 499 the client disconnected, 500 the policy failed.
        """
        await asyncio.wait({self._sampling, self._disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finished = self._sampling.done()
        if self._episode.turn != self._turn or (finished and self._sampling.cancelled()):
            raise_gone(self._engine, self._episode.uuid)
        if not finished:
            raise EngineError(CLIENT_LEFT, "The client disconnected.")
        result: Completion | Exception = self._sampling.result()
        if isinstance(result, EngineError):
            raise result
        if isinstance(result, Exception):
            self._engine.verbose.add("chat", f"sampling failed: {result!r}", logging.ERROR)
            raise EngineError(500, f"The policy failed to answer: {result!r}")
        self._episode.completions.append(result)
        return result

    def _on_text(self, text: str) -> None:
        self._pieces.append(text)
        self._news.set()


class CallStarter:
    """Starts the LLM calls of an engine's episodes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def model(self) -> str:
        """Model name in answers."""
        policy = self.engine.policy_holder.policy
        return policy.name if policy is not None and not self.engine.faithful else "unknown"

    def begin(
        self, key: EpisodeKey, request: ChatRequest, wait_for_disconnect: WaitForDisconnect
    ) -> LiveCall:
        """Start one call of an episode.

        Args:
            key: The episode's key.
            request: The call.
            wait_for_disconnect: Waits until the client has disconnected, which cancels the call.

        Raises:
            EngineError: 401 wrong key, 404 the episode or the engine's run has ended, 400 the
                conversation cannot be rendered.
        """
        episode, policy = self._claimed_episode(key)
        prompt, params = self._prepare(episode, policy, request)
        engine = self.engine
        episode.call_count += 1
        engine.clients.refresh(episode.client)

        async def sample(on_text: Callable[[str], None]) -> Completion | Exception:
            if not engine.faithful:
                return await _sample(policy, prompt, params, on_text)
            if prompt.truncated:
                return real_server_quirks.overflow(prompt)
            async with episode.serial:
                return await _sample(policy, prompt, params, on_text)

        return LiveCall(engine, episode, sample, wait_for_disconnect)

    def _claimed_episode(self, key: EpisodeKey) -> tuple[Episode, PolicyBackend]:
        engine = self.engine
        policy = engine.policy_holder.policy
        episode = engine.pool.find(key.episode_uuid)
        if engine.status not in ROLLING or policy is None or episode is None:
            raise_gone(engine, key.episode_uuid)
        if not (key.matches(episode.address) or engine.faithful):
            raise EngineError(401, "Invalid authorization data")
        if episode.status != "claimed":
            raise_gone(engine, key.episode_uuid)
        return episode, policy

    def _prepare(
        self, episode: Episode, policy: PolicyBackend, request: ChatRequest
    ) -> tuple[Prompt, SamplingParams]:
        if self.engine.faithful:
            request = real_server_quirks.strip_request(request)
        prompt, params = prepare_call(self.engine, policy, request, episode.type)
        return self._repaired(episode, policy, prompt, params), params

    def _repaired(
        self, episode: Episode, policy: PolicyBackend, prompt: Prompt, params: SamplingParams
    ) -> Prompt:
        """Return the prompt with the sampled ids of earlier answers."""
        if prompt.truncated or not episode.completions:
            return prompt
        repaired = repair_prompt(prompt.tokens, episode.completions, policy.decode)
        if not repaired.drifts:
            return prompt
        fits = len(repaired.tokens) + 1 <= policy.context
        self.engine.token_drift.note(repaired.drifts, repaired=fits)
        self.engine.verbose.add(
            "timelines",
            f"episode {episode.uuid}: {repaired.drifts} earlier answers came back as other tokens "
            f"than were sampled; {'repaired' if fits else 'not repaired, the window is too small'}",
        )
        return replace(prompt, tokens=repaired.tokens) if fits else prompt


def prepare_call(
    engine: Engine, policy: PolicyBackend, request: ChatRequest, kind: EpisodeType
) -> tuple[Prompt, SamplingParams]:
    """Return the prompt of a call and how its answer is sampled.

    Raises:
        EngineError: 400, the conversation cannot be rendered, or a strict engine has no room for
            it.
    """
    job = engine.require_job()
    whole = engine.job_support.loads_models
    limit = answer_limit(job, policy.context, request, whole=whole)
    named = request.max_tokens is not None or request.max_completion_tokens is not None
    room = 1 if whole and not named else limit
    if request.ajetc_prompt is not None:
        prompt = bare_prompt(policy, request.ajetc_prompt, room)
    else:
        prompt = render_messages(policy, request.conversation(), request.offered_tools(), room)
    if prompt.truncated and engine.strict_context:
        raise too_long(policy.context, prompt.length, limit, named=named)
    left = policy.context - len(prompt.tokens) if whole else limit
    return prompt, sampling_params(request, job, kind, max(1, min(limit, left)))


def raise_gone(engine: Engine, name: str) -> NoReturn:
    """Raise EngineError 404 with the reason why the episode accepts no calls any more."""
    if engine.status not in ROLLING:
        raise EngineError(
            404,
            f"The server is not in {EngineStatus.ROLLING} status. "
            f"Current status: [{engine.status}].",
        )
    if engine.pool.find(name) is None:
        raise EngineError(404, f"Episode {name} not found.")
    raise EngineError(404, f"Episode {name} is not claimed any more.")


async def _sample(
    policy: PolicyBackend, prompt: Prompt, params: SamplingParams, on_text: Callable[[str], None]
) -> Completion | Exception:
    try:
        return await policy.sample(prompt, params, on_text)
    except UnknownTokenError as error:  # from a prompt of token ids: a bad request
        return EngineError(400, str(error))
    except Exception as error:  # a policy error fails this call only
        log.error("sampling", exc_info=error)
        return error
