"""Observe mode: any OpenAI-compatible server in place of a swarm server; nothing is trained.

`ObserveClient` is a `SwarmWire` that calls no route of a swarm server, so that the watcher, the
claims and the life cycle of a group work as in training. The upstream has no episodes: a claim is
granted while the number of calls in flight allows it, an end is only recorded (the reward is in the
journal), an abort drops the episode. What differs elsewhere are the five properties of
`ServerHandle` that `observe_handle` sets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar, Unpack

import msgspec

from ajet_swarm.api.chat import ChatAnswer, ChatOptions, ask
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import GENERAL, QUICK, SCHEMA, Route, ServerFacts, SwarmWire
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.interface import Request, Transport
from ajet_swarm.protocol.errors import (
    ChatError,
    ChatErrorKind,
    ServerRefusal,
    SwarmError,
    TransportError,
)
from ajet_swarm.protocol.schemas import (
    AbortKind,
    Claimed,
    ClaimRefused,
    EndKind,
    EndOutcome,
    EngineState,
    EngineStatus,
    EpisodeRecord,
    PoolInfo,
    RefusedKind,
    WireOutput,
)
from ajet_swarm.runtime import SYSTEM, Chance, Runtime
from core.openai.errors import hide
from core.settings import Settings, UpstreamSettings
from proxy.context import ServerHandle
from proxy.upstream.bare_prompts import PROMPT, CompletionsTransport
from proxy.upstream.errors import LATER, RETRY_AFTER, redirect_fault, upstream_fault, with_jitter
from proxy.upstream.transport import (
    NO_KEY,
    ErrorMappingTransport,
    ModelList,
    UpstreamTransport,
    addresses,
    key_of,
    upstream_request,
    with_candidate_id,
)

T = TypeVar("T")

STATE = "OBSERVING"
"""The state that is displayed for such a server."""
NOTHING_TRAINED = "observe: nothing is trained"
"""Detail of that state."""
CHECK_EVERY = 5.0
"""Seconds between two checks of a healthy upstream."""
MAX_ATTEMPTS = 3
"""Number of calls per candidate; it fails if the upstream defers the last one too."""
MAX_WAIT = 30.0
"""Maximum seconds that a candidate waits after the upstream deferred its call."""
PROBE = {"prompt": "a"}
"""Request that detects whether an upstream without an OpenAPI document has `/tokenize`."""
MOST_CALLS = 64
"""Maximum number of calls in flight; further requests wait."""
CANDIDATES = 4
"""Number of candidates of a group if the settings give none."""


def observe_handle(
    settings: Settings,
    name: str,
    transport: Transport,
    client_uuid: str,
    runtime: Runtime = SYSTEM,
) -> ServerHandle:
    """Return the handle of the configured upstream, with its own watcher and claimer.

    Args:
        settings: The program's settings.
        name: Name of the upstream.
        transport: The transport that sends requests.
        client_uuid: Id of this client.
        runtime: For the times, ids and pauses.

    Raises:
        UpstreamError: The address or the key of the upstream is invalid.
    """
    repeats = settings.proxy.repeats or CANDIDATES
    client = ObserveClient(
        settings.upstream, transport, client_uuid, repeats=repeats, name=name, runtime=runtime
    )
    watcher = Watcher(client, runtime.clock.wall)
    return ServerHandle(
        name,
        client.upstream.base,
        client,
        watcher,
        EpisodeClaimer(client, watcher, runtime=runtime),
        most_episodes=client.most_calls,
        trains=False,
        intent_is_durable=False,
        run_samples=False,
        strict_window=True,
        may_be_commanded=False,
    )


class _Status(EngineStatus, frozen=True):
    """A status that is always ROLLING: the upstream can be called at any time."""

    @property
    def state(self) -> EngineState:
        return EngineState.ROLLING


class ObserveClient(SwarmWire):
    """An upstream in place of a swarm server.

    Args:
        settings: Address, key, model and limits of the upstream.
        transport: The transport that sends requests.
        client_uuid: Id of this client.
        repeats: Number of candidates per group.
        name: Name of the upstream for the operator.
        runtime: For the times, ids and pauses.

    Attributes:
        upstream: The upstream.
        most_calls: Maximum number of calls in flight; a group of `repeats` fits.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        transport: Transport,
        client_uuid: str,
        *,
        repeats: int = CANDIDATES,
        name: str = "upstream",
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.upstream = Upstream(settings, transport, runtime.chance)
        line = self.upstream.transport
        super().__init__(self.upstream.url, line, client_uuid, name=name, runtime=runtime)
        self.facts = self.upstream.facts
        self.most_calls = max(MOST_CALLS, repeats)
        self._repeats = repeats
        self._held: dict[str, Claimed] = {}
        self._unanswered: set[str] = set()
        """Ids of held episodes that have no answer yet."""

    async def _ask(
        self, route: Route[T], body: Mapping[str, Any] | None = None, timeout: float = 0.0
    ) -> T:
        if route is SCHEMA:
            return await super()._ask(route, body, timeout)
        if route.optional:
            return route.answer()
        raise SwarmError(
            "there is no engine: in observe mode nothing is trained",
            todo="Pass a swarm server with --swarm-url to train",
        )

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """Return that the upstream is healthy; check it only every `CHECK_EVERY` seconds.

        Raises:
            TransportError: There was no response.
            SwarmError: The upstream reports that it is not healthy.
        """
        await self.upstream.check(timeout)
        trouble = f"; {self.facts.trouble}" if self.facts.trouble else ""
        return _Status(engine_status=STATE, engine_status_detail=NOTHING_TRAINED + trouble)

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """Return the number of candidates of a group, and the name of the model."""
        return PoolInfo(
            engine_status=EngineState.ROLLING.wire,
            task_expected_num_repeat=self._repeats,
            training_model_path=next(iter(self.facts.models), None),
        )

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """Return the paths in the upstream's OpenAPI document; without one, its token routes.

        Raises:
            SwarmError: There was no usable response.
        """
        try:
            return await super().features(again=again)
        except TransportError:
            raise
        except SwarmError as error:  # there is none, or it is an HTML page
            if isinstance(error, ServerRefusal) and error.status >= 500:
                raise
            self._features = await _token_paths(self.transport, self.url, self.facts.models)
            return self._features

    # --- episodes -------------------------------------------------------------------------------

    async def claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
        throttle_policy: Mapping[str, Any] | None = None,
    ) -> Claimed | ClaimRefused:
        """Return a simulated episode, which never expires, unless the upstream cannot be called."""
        if not self.upstream.reachable:
            return ClaimRefused(RefusedKind.UNREACHABLE, "the upstream is not reachable")
        if len(self._unanswered) >= self.most_calls:
            return ClaimRefused(RefusedKind.NONE_AVAILABLE, "too many calls are in flight")
        claimed = Claimed(
            episode_uuid=self._runtime.chance.token(8),
            base_url=self.upstream.base,
            api_key=self.upstream.key or NO_KEY,
            episode_type=episode_type,
            at=self._runtime.clock.wall(),
            discard_timeout=discard_episode_timeout,
        )
        self._held[claimed.episode_uuid] = claimed
        self._unanswered.add(claimed.episode_uuid)
        return claimed

    async def end(
        self,
        episode_uuid: str,
        task_id: str,
        output: WireOutput,
        declare_client_active: bool = True,
        *,
        timeout: float = GENERAL,
    ) -> EndOutcome:
        """Drop the episode; the reward is in the journal only."""
        await self.abort(episode_uuid)
        return EndOutcome(EndKind.RECORDED)

    async def abort(
        self,
        episode_uuid: str,
        task_id: str = "",
        declare_client_active: bool = False,
        *,
        timeout: float = GENERAL,
    ) -> AbortKind:
        """Drop the episode; nothing is sent."""
        self._held.pop(episode_uuid, None)
        self._unanswered.discard(episode_uuid)
        return AbortKind.CONFIRMED

    async def can_continue(self, episode_uuid: str) -> bool | None:
        return episode_uuid in self._held

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """Return the held episodes; none after a restart."""
        return [
            EpisodeRecord(
                episode_uuid=uuid,
                episode_status="claimed",
                episode_type=claimed.episode_type,
                client_uuid=self.client_uuid,
                latest_activity_timestamp=claimed.at,
                discard_episode_timeout=claimed.discard_timeout,
            )
            for uuid, claimed in self._held.items()
        ]

    async def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        **options: Unpack[ChatOptions],
    ) -> ChatAnswer:
        """Send a chat request; see `Upstream.ask`."""
        answer = await self.upstream.ask(claimed, body, **options)
        self._unanswered.discard(claimed.episode_uuid)
        return answer


class Upstream:
    """The health of an upstream, its models, and calls that are sent again if it defers them.

    Args:
        settings: Its address, key, model and temperature.
        transport: The transport that sends requests.
        chance: Source of pauses and ids.

    Attributes:
        base: Base URL of the API.
        url: Root URL of the routes outside `/v1`.
        key: The key; empty for none.
        facts: Its models, if known, their window, and what is wrong with it.
        transport: Sends requests with its key.
        reachable: Whether the newest check or call reached it; if not, no episode is granted.
    """

    def __init__(self, settings: UpstreamSettings, transport: Transport, chance: Chance) -> None:
        self.base, root = addresses(settings.url)
        self.url = root.rstrip("/")
        self.key = key_of(settings)
        self.facts = ServerFacts((settings.model,) if settings.model else ())
        self.transport = UpstreamTransport(transport, self.key, lambda: self.facts.models)
        self.reachable = True
        self._calls = ErrorMappingTransport(transport, self.key)
        self._completions = CompletionsTransport(self._calls)
        self._chance = chance
        self._temperature = settings.temperature
        self._model_is_set = bool(settings.model)
        self._next_check = 0.0
        """On the loop's clock."""
        self._has_health = True
        self._listed = False
        """Whether it has answered the request for its models."""
        self._paused_until = 0.0
        """Time on the loop's clock before which no call is sent, as the upstream deferred one; 0
        for no pause."""

    async def check(self, timeout: float) -> None:
        """Check its health, only every `CHECK_EVERY` seconds.

        Raises:
            TransportError: There was no response.
            SwarmError: It reports that it is not healthy.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._next_check:
            await self._check(timeout)
            self.reachable = True
            self._next_check = now + CHECK_EVERY

    async def _check(self, timeout: float) -> None:
        if self._has_health:
            answer = await self.transport.request(_get(f"{self.url}/health", timeout))
            if answer.status >= 500:
                raise ServerRefusal(answer.status, "the upstream reports that it is not healthy")
            self._has_health = answer.status == 200
        if not (self._has_health and self._listed):
            await self._read_models(timeout)

    async def _read_models(self, timeout: float) -> None:
        where = f"{self.base}/models"
        answer = await self.transport.request(_get(where, timeout))
        if answer.status >= 500:
            raise ServerRefusal(answer.status, "the upstream does not list its models")
        if answer.status in (401, 403):
            self._note(upstream_fault(answer.status, answer.headers, answer.body, self.key))
            return
        self._listed = True
        if 300 <= answer.status < 400:
            self._note(redirect_fault(answer.status, answer.headers, where, self.key))
            return
        if self.facts.trouble.startswith("key"):
            self.facts.trouble = ""
        try:
            models = msgspec.json.decode(answer.body, type=ModelList).data
        except (msgspec.MsgspecError, RecursionError):  # some servers do not list their models
            return
        if not self._model_is_set:
            self.facts.models = tuple(model.id for model in models if model.id)
        chosen = next(iter(self.facts.models), "")
        self.facts.context_length = next(
            (model.window for model in models if model.id == chosen), None
        )

    async def ask(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        **options: Unpack[ChatOptions],
    ) -> ChatAnswer:
        """Send a chat request, again if it is deferred; see `ajet_swarm.api.chat.ask`.

        A bare prompt is not streamed.
        """
        request = upstream_request(body, claimed.episode_type, self.facts.models, self._temperature)
        options["headers"] = with_candidate_id(claimed, options.get("headers"))
        transport: Transport = self._calls
        if PROMPT in request:
            transport, options["on_delta"] = self._completions, None
        return await self._call(
            partial(ask, transport, claimed, request, chance=self._chance, **options)
        )

    async def _call(self, call: Callable[[], Awaitable[ChatAnswer]]) -> ChatAnswer:
        for attempts in range(1, MAX_ATTEMPTS + 1):
            if self._paused_until:
                await self._pause()
            try:
                answer = await call()
            except ChatError as error:
                self._note(error)
                retry_after: float | None = getattr(error, "retry_after", None)
                delay = RETRY_AFTER * attempts if retry_after is None else retry_after
                deferred = error.kind is ChatErrorKind.LIMITED and delay <= MAX_WAIT
                if not deferred or attempts == MAX_ATTEMPTS:
                    raise
                until = asyncio.get_running_loop().time() + delay
                self._paused_until = max(self._paused_until, until)
            else:
                self.facts.trouble = ""
                return answer
        raise AssertionError("the last attempt returns or raises")

    async def _pause(self) -> None:
        wait = self._paused_until - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(with_jitter(wait, self._chance))
        else:
            self._paused_until = 0.0

    def _note(self, error: ChatError) -> None:
        """Update the upstream's state after a failed call."""
        if error.kind is ChatErrorKind.UNREACHABLE:
            self.reachable, self._next_check = False, 0.0
        elif error.kind is ChatErrorKind.UNAUTHORIZED:
            self.facts.trouble = f"key refused ({error.status})"
        elif error.status in (404, 405):
            self.facts.trouble = f"{error.status}: {hide(error.text, self.key)[:200]}"
        elif 300 <= error.status < 400:
            self.facts.trouble = error.text
        elif error.status in LATER:
            self.facts.trouble = f"too many requests for it ({error.status})"


def _get(url: str, timeout: float) -> Request:
    return Request("GET", url, timeout=timeout, repeatable=True)


async def _token_paths(transport: Transport, url: str, models: tuple[str, ...]) -> frozenset[str]:
    """Return the token routes of an upstream without an OpenAPI document, if it has them.

    Raises:
        SwarmError: There was no response.
    """
    answer = await transport.request(
        Request(
            "POST",
            f"{url}/tokenize",
            body=msgspec.json.encode({**PROBE, "model": models[0]} if models else PROBE),
            headers={"Content-Type": "application/json"},
            timeout=QUICK,
            repeatable=True,
        )
    )
    try:
        count = msgspec.json.decode(answer.body, type=dict[str, Any]).get("count")
    except (msgspec.MsgspecError, RecursionError):
        count = None
    offered = answer.status == 200 and isinstance(count, int)
    return frozenset({"/tokenize", "/detokenize"} if offered else ())
