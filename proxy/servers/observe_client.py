"""Observe mode: any OpenAI-compatible server in place of a swarm server; nothing is trained.

The upstream has no episodes, so they are simulated: a claim is granted while the number of calls in
flight allows it, an end is only recorded (the reward is in the journal), an abort only
releases the call. All layers above, from the watcher to the life cycle of a group, work as in
training.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ajet_swarm.api.chat import CHAT, ask
from ajet_swarm.api.chat_stream import OnDelta
from ajet_swarm.api.outcomes import (
    AbortKind,
    ChatAnswer,
    Claimed,
    ClaimRefused,
    EndKind,
    EndOutcome,
)
from ajet_swarm.api.wire import GENERAL, QUICK, served_paths, serves_engine
from ajet_swarm.http.interface import Request, Response, Transport
from ajet_swarm.protocol.errors import (
    ChatError,
    ChatErrorKind,
    ServerRefusal,
    SwarmError,
    TransportError,
)
from ajet_swarm.protocol.schemas import (
    EngineState,
    EngineStatus,
    EpisodeRecord,
    PoolInfo,
    WireOutput,
)
from ajet_swarm.runtime import SYSTEM, Chance, Runtime
from core.openai.errors import hide
from core.settings import UpstreamSettings
from proxy.http.upstream_errors import (
    LATER,
    RETRY_AFTER,
    redirect_fault,
    upstream_fault,
    with_jitter,
)
from proxy.http.upstream_transport import (
    NO_KEY,
    ErrorMappingTransport,
    ModelList,
    UpstreamTransport,
    addresses,
    key_of,
    upstream_request,
    with_candidate_id,
)
from proxy.servers.bare_prompts import PROMPT, CompletionsTransport
from proxy.servers.observe_engine import NoEngine
from proxy.servers.observe_episodes import SimulatedEpisodes

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
CANDIDATES = 4


_RECORDED = EndOutcome(EndKind.RECORDED)


class _Status(EngineStatus, frozen=True):
    """A status that is always ROLLING: the upstream can be called at any time."""

    @property
    def state(self) -> EngineState:
        return EngineState.ROLLING


class CallPause:
    """A pause of all calls to an upstream that has deferred one.

    Args:
        chance: For the random part of each wait.
    """

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._until = 0.0

    async def wait(self) -> None:
        """Wait until calls may be sent again."""
        if (wait := self._until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(with_jitter(wait, self._chance))

    def extend(self, error: ChatError, attempts: int) -> bool:
        """Pause all calls for the time that the upstream requests.

        Args:
            error: The upstream's error.
            attempts: Number of times the call was sent.

        Returns:
            Whether to send the call again.
        """
        retry_after: float | None = getattr(error, "retry_after", None)
        delay = RETRY_AFTER * attempts if retry_after is None else retry_after
        if attempts == MAX_ATTEMPTS or delay > MAX_WAIT:
            return False
        self._until = max(self._until, asyncio.get_running_loop().time() + delay)
        return True


class ObserveClient(NoEngine):
    """An upstream with the interface of a swarm server (`SwarmApi`).

    Args:
        settings: Address, key, model and limits of the upstream.
        transport: The transport that sends requests.
        client_uuid: Id of this client.
        repeats: Number of candidates per group.
        name: Name of the upstream for the operator.
        runtime: For the times, ids and pauses.

    Attributes:
        models: The upstream's models, the default first; empty if unknown.
        context_length: Context window in tokens; None if unknown.
        trouble: What is wrong with it, for the operator; empty if nothing is.
        episodes: The simulated episodes.
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
        self.base, root = addresses(settings.url)
        self.url = root.rstrip("/")
        self.client_uuid = client_uuid
        self.name = name or self.url
        self.stopped_at = 0.0
        self.settings = settings
        self.key = key_of(settings)
        self.repeats = repeats
        self.models: tuple[str, ...] = (settings.model,) if settings.model else ()
        self.context_length: int | None = None
        self.transport: Transport = UpstreamTransport(transport, self.key, lambda: self.models)
        self.trouble = ""
        self._transport = ErrorMappingTransport(transport, self.key)
        self._completions_transport = CompletionsTransport(self._transport)
        self._features: frozenset[str] | None = None
        self.episodes = SimulatedEpisodes(
            self.base, self.key or NO_KEY, max(settings.calls, repeats), runtime
        )
        self._next_check = 0.0
        self._has_health = True
        self._listed = False
        self._chance = runtime.chance
        self._pause = CallPause(runtime.chance)

    # --- status ---------------------------------------------------------------------------------

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """Return that the upstream is healthy; check it only every `CHECK_EVERY` seconds.

        Raises:
            TransportError: There was no response.
            SwarmError: The upstream reports that it is not healthy.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._next_check:
            await self._check(timeout)
            self.episodes.reachable = True
            self._next_check = now + CHECK_EVERY
        detail = f"{NOTHING_TRAINED}; {self.trouble}" if self.trouble else NOTHING_TRAINED
        return _Status(engine_status=STATE, engine_status_detail=detail)

    async def _check(self, timeout: float) -> None:
        if self._has_health:
            answer = await self._fetch(f"{self.url}/health", timeout)
            if answer.status >= 500:
                raise ServerRefusal(answer.status, "the upstream reports that it is not healthy")
            self._has_health = answer.status == 200
        if not (self._has_health and self._listed):
            await self._read_models(timeout)

    async def _read_models(self, timeout: float) -> None:
        answer = await self._fetch(f"{self.base}/models", timeout)
        if answer.status >= 500:
            raise ServerRefusal(answer.status, "the upstream does not list its models")
        if answer.status in (401, 403):
            self._note(upstream_fault(answer.status, answer.headers, answer.body, self.key))
            return
        self._listed = True
        if 300 <= answer.status < 400:
            self._note(
                redirect_fault(answer.status, answer.headers, f"{self.base}/models", self.key)
            )
            return
        if self.trouble.startswith("key"):
            self.trouble = ""
        try:
            models = msgspec.json.decode(answer.body, type=ModelList).data
        except (msgspec.MsgspecError, RecursionError):  # some servers do not list their models
            return
        if not self.settings.model:
            self.models = tuple(model.id for model in models if model.id)
        chosen = next(iter(self.models), "")
        self.context_length = next((model.window for model in models if model.id == chosen), None)

    def _fetch(self, url: str, timeout: float) -> Awaitable[Response]:
        return self.transport.request(Request("GET", url, timeout=timeout, repeatable=True))

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """Return the number of candidates of a group, and the name of the model."""
        return PoolInfo(
            engine_status=EngineState.ROLLING.wire,
            task_expected_num_repeat=self.repeats,
            training_model_path=self.models[0] if self.models else None,
        )

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """Return the paths in the upstream's OpenAPI document; without one, its token routes.

        Raises:
            SwarmError: There was no usable response.
        """
        if self._features is None or again:
            try:
                self._features = await served_paths(self.transport, self.url)
                return self._features
            except ServerRefusal as error:
                if error.status >= 500:
                    raise
            except TransportError:
                raise
            except SwarmError:  # an HTML page, for example
                pass
            model = self.models[0] if self.models else ""
            self._features = await token_paths(self.transport, self.url, model)
        return self._features

    async def is_embedded(self) -> bool:
        return await serves_engine(self.features(again=True))

    # --- episodes -------------------------------------------------------------------------------

    async def claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
        throttle_policy: Mapping[str, Any] | None = None,
    ) -> Claimed | ClaimRefused:
        """Return a simulated episode, unless the upstream cannot be called now."""
        claimed = self.episodes.claim(1, episode_type, discard_episode_timeout)
        return claimed if isinstance(claimed, ClaimRefused) else claimed[0]

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
        self.episodes.release(episode_uuid)
        return _RECORDED

    async def abort(
        self,
        episode_uuid: str,
        task_id: str = "",
        declare_client_active: bool = False,
        *,
        timeout: float = GENERAL,
    ) -> AbortKind:
        """Drop the episode; nothing is sent."""
        self.episodes.release(episode_uuid)
        return AbortKind.CONFIRMED

    async def can_continue(self, episode_uuid: str) -> bool | None:
        """Return whether the episode is held; episodes never expire."""
        return episode_uuid in self.episodes

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """Return the held episodes; none after a restart."""
        return self.episodes.records(self.client_uuid)

    # --- calls ----------------------------------------------------------------------------------

    def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
        most: int = 0,
        on_delta: OnDelta | None = None,
    ) -> Awaitable[ChatAnswer]:
        """Send a chat request, again if the upstream defers it; see `ajet_swarm.api.chat.ask`.

        A bare prompt is not streamed.
        """
        request = self._request_body(claimed, body)
        own = with_candidate_id(claimed, headers)
        bare = PROMPT in request
        transport = self._completions_transport if bare else self._transport
        listener = None if bare else on_delta
        return self._call(
            claimed,
            lambda: ask(
                transport, claimed, request, own, timeout, most, listener, chance=self._chance
            ),
        )

    def _request_body(self, claimed: Claimed, body: bytes | Mapping[str, Any]) -> dict[str, Any]:
        return upstream_request(body, claimed.episode_type, self.models, self.settings.temperature)

    async def _call(
        self, claimed: Claimed, call: Callable[[], Awaitable[ChatAnswer]]
    ) -> ChatAnswer:
        for attempts in range(1, MAX_ATTEMPTS + 1):
            await self._pause.wait()
            try:
                answer = await call()
            except ChatError as error:
                self._note(error)
                if error.kind is not ChatErrorKind.LIMITED or not self._pause.extend(
                    error, attempts
                ):
                    raise
            else:
                self.trouble = ""
                self.episodes.answered(claimed.episode_uuid)
                return answer
        raise AssertionError("the last attempt returns or raises")

    def _note(self, error: ChatError) -> None:
        """Update the upstream's state after a failed call."""
        if error.kind is ChatErrorKind.UNREACHABLE:
            self.episodes.reachable, self._next_check = False, 0.0
        elif error.kind is ChatErrorKind.UNAUTHORIZED:
            self.trouble = f"key refused ({error.status})"
        elif error.status in (404, 405):
            self.trouble = f"{error.status}: {hide(error.text, self.key)[:200]}"
        elif 300 <= error.status < 400:
            self.trouble = error.text
        elif error.status in LATER:
            self.trouble = f"too many requests for it ({error.status})"


async def token_paths(transport: Transport, url: str, model: str) -> frozenset[str]:
    """Return the token routes of an upstream without an OpenAPI document, if it has them.

    Args:
        transport: The transport that sends the request.
        url: The upstream's root URL.
        model: One of its models; empty if unknown.

    Raises:
        SwarmError: There was no response.
    """
    answer = await transport.request(
        Request(
            "POST",
            f"{url}/tokenize",
            body=msgspec.json.encode({**PROBE, "model": model} if model else PROBE),
            headers={"Content-Type": "application/json"},
            timeout=QUICK,
            repeatable=True,
        )
    )
    try:
        counts = answer.status == 200 and isinstance(
            msgspec.json.decode(answer.body, type=dict[str, Any]).get("count"), int
        )
    except (msgspec.MsgspecError, RecursionError):
        counts = False
    return frozenset({"/tokenize", "/detokenize"} if counts else ())
