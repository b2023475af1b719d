"""Observe mode: any OpenAI-compatible server in place of a swarm server; nothing is trained.

The upstream has no episodes, so they are made up here: a claim is granted while the number of calls
in flight allows it, an end is recorded (the journal has the reward) and sent nowhere, an abort only
releases the call. Everything above, from the watcher to the life cycle of a group, is the same as
in training.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ajet_swarm.api.chat import CHAT, ask, ask_stream
from ajet_swarm.api.chat_stream import OnDelta
from ajet_swarm.api.engine import served_paths, serves_engine
from ajet_swarm.api.outcomes import (
    ChatAnswer,
    Claimed,
    ClaimRefused,
    EndKind,
    EndOutcome,
    RefusedKind,
)
from ajet_swarm.api.wire import GENERAL, QUICK
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
    addresses,
    key_of,
    upstream_request,
    with_candidate_id,
)
from proxy.servers.bare_prompts import PROMPT, BareTransport
from proxy.servers.observe_engine import NoEngine

STATE = "OBSERVING"
"""The state shown for such a server."""
NOTHING = "observe: nothing is trained"
"""Said wherever a server's state is told."""
LOOK = 5.0
"""Seconds between two checks of an upstream that was well at the last one."""
TRIES = 3
"""Number of calls of one candidate that the upstream may put off before the candidate fails."""
PATIENCE = 30.0
"""Maximum number of seconds that a candidate waits after its call was put off."""
PROBE = {"prompt": "a"}
"""Request that finds out whether an upstream which describes no routes counts tokens."""
CANDIDATES = 4


class _Status(EngineStatus, frozen=True):
    """Always ROLLING for callers: it can be called at any time."""

    @property
    def state(self) -> EngineState:
        return EngineState.ROLLING


class CallPause:
    """The time until which an upstream that put off a call gets no other one."""

    def __init__(self) -> None:
        self._until = 0.0

    async def wait(self) -> None:
        """Wait until calls may be sent again."""
        if (wait := self._until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(with_jitter(wait))

    def extend(self, error: ChatError, tries: int) -> bool:
        """Pause all calls for as long as an upstream says that put one off.

        Args:
            error: Its answer.
            tries: How often the call was sent.

        Returns:
            Whether the call is to be sent again.
        """
        told: float | None = getattr(error, "retry_after", None)
        wait = RETRY_AFTER * tries if told is None else told
        if tries == TRIES or wait > PATIENCE:
            return False
        self._until = max(self._until, asyncio.get_running_loop().time() + wait)
        return True


class ObserveClient(NoEngine):
    """An upstream as a `SwarmApi`: the proxy uses it like a swarm server.

    Args:
        settings: Where it is and how it is asked.
        transport: How requests travel.
        client_uuid: Ours.
        repeats: Candidates of a group.
        name: What to call it.

    Attributes:
        models: What it can be asked for, the default first; empty while that is not known.
        context_length: Its window in tokens; None when it does not say.
        trouble: What is wrong with it, for the operator; empty when nothing is.
        announced: The operator was told what observe mode is.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        transport: Transport,
        client_uuid: str,
        *,
        repeats: int = CANDIDATES,
        name: str = "upstream",
    ) -> None:
        self.base, root = addresses(settings.url)
        self.url = root.rstrip("/")
        self.transport = transport
        self.client_uuid = client_uuid
        self.name = name or self.url
        self.stopped_at = 0.0
        self.settings = settings
        self.key = key_of(settings)
        self.repeats = repeats
        self.models: tuple[str, ...] = (settings.model,) if settings.model else ()
        self.context_length: int | None = None
        self.trouble = ""
        self.announced = False
        self._checked = ErrorMappingTransport(transport, self.key)
        self._bare = BareTransport(self._checked)
        self._features: frozenset[str] | None = None
        self._held: dict[str, Claimed] = {}
        self._busy: set[str] = set()
        """Of these, the ones that have no answer yet."""
        self._next_look = 0.0
        self._doubted = False
        """A call could not reach it since the last look."""
        self._has_health = True
        self._listed = False
        self._pause = CallPause()

    # --- what it is doing -----------------------------------------------------------------------

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """Return that the upstream is well; it is really checked only from time to time.

        Raises:
            TransportError: No answer.
            SwarmError: It reports that it is not well.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._next_look:
            await self._look(timeout)
            self._doubted = False
            self._next_look = now + LOOK
        detail = f"{NOTHING}; {self.trouble}" if self.trouble else NOTHING
        return _Status(engine_status=STATE, engine_status_detail=detail)

    async def _look(self, timeout: float) -> None:
        if self._has_health:
            answer = await self._fetch(f"{self.url}/health", timeout)
            if answer.status >= 500:
                raise ServerRefusal(answer.status, "the upstream says that it is not well")
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
            listed = msgspec.json.decode(answer.body, type=ModelList).data
        except (msgspec.MsgspecError, RecursionError):  # not every server lists its models
            return
        if not self.settings.model:
            self.models = tuple(one.id for one in listed if one.id)
        chosen = next(iter(self.models), "")
        self.context_length = next((one.window for one in listed if one.id == chosen), None)

    def _fetch(self, url: str, timeout: float) -> Awaitable[Response]:
        return self.transport.request(
            Request("GET", url, headers=self.credentials(), timeout=timeout, repeatable=True)
        )

    def credentials(self) -> dict[str, str]:
        """Return the headers that authenticate the proxy."""
        return {"Authorization": f"Bearer {self.key or NO_KEY}"}

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """Return the number of candidates of a group, and the name of the model."""
        return PoolInfo(
            engine_status=EngineState.ROLLING.wire,
            task_expected_num_repeat=self.repeats,
            training_model_path=self.models[0] if self.models else None,
        )

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """The paths it describes; of one that describes none, those for tokens when it has them.

        Raises:
            SwarmError: no usable answer.
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
            except SwarmError:  # a page, as of a web site at that address
                pass
            model = self.models[0] if self.models else ""
            self._features = await token_paths(self.transport, self.url, model, self.credentials())
        return self._features

    async def is_embedded(self) -> bool:
        """See `ajet_swarm.api.engine.serves_engine`."""
        return await serves_engine(self)

    # --- episodes -------------------------------------------------------------------------------

    async def claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
        throttle_policy: Mapping[str, Any] | None = None,
    ) -> Claimed | ClaimRefused:
        """Return a made-up episode, unless the upstream cannot be called now."""
        if self._doubted:
            return ClaimRefused(RefusedKind.UNREACHABLE, "the upstream was not reached")
        if len(self._busy) >= max(self.settings.calls, self.repeats):
            return ClaimRefused(RefusedKind.NONE_AVAILABLE, "too many calls are in flight")
        claimed = Claimed(
            episode_uuid=str(uuid.uuid4()),
            base_url=self.base,
            api_key=self.key or NO_KEY,
            episode_type=episode_type,
            at=time.time(),
            discard_timeout=discard_episode_timeout,
        )
        self._held[claimed.episode_uuid] = claimed
        self._busy.add(claimed.episode_uuid)
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
        """Drop the episode: the reward is in the journal, and goes nowhere else."""
        self._let_go(episode_uuid)
        return EndOutcome(EndKind.RECORDED)

    async def abort(
        self,
        episode_uuid: str,
        task_id: str = "",
        declare_client_active: bool = False,
        *,
        timeout: float = GENERAL,
    ) -> bool:
        """Drop the episode: nothing is sent."""
        self._let_go(episode_uuid)
        return True

    async def can_continue(self, episode_uuid: str) -> bool | None:
        """Return whether the episode is held: no one reclaims it."""
        return episode_uuid in self._held

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """Return the held episodes; none after a restart."""
        return [
            EpisodeRecord(
                episode_uuid=name,
                episode_status="claimed",
                episode_type=one.episode_type,
                client_uuid=self.client_uuid,
                latest_activity_timestamp=one.at,
                discard_episode_timeout=one.discard_timeout,
            )
            for name, one in self._held.items()
        ]

    def _let_go(self, name: str) -> None:
        self._held.pop(name, None)
        self._busy.discard(name)

    # --- calls ----------------------------------------------------------------------------------

    def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> Awaitable[ChatAnswer]:
        """See `ajet_swarm.api.chat.ask`. A refusing upstream is asked again when it says."""
        told, sent = self._asked(claimed, body), with_candidate_id(claimed, headers)
        way = self._bare if PROMPT in told else self._checked
        return self._call(claimed, lambda: ask(way, claimed, told, sent, timeout))

    def chat_stream(
        self,
        claimed: Claimed,
        body: Mapping[str, Any],
        on_delta: OnDelta,
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> Awaitable[ChatAnswer]:
        """See `ajet_swarm.api.chat.ask_stream`; a bare prompt is answered whole."""
        if PROMPT in body:
            return self.chat(claimed, body, headers, timeout)
        told, sent = self._asked(claimed, body), with_candidate_id(claimed, headers)
        return self._call(
            claimed, lambda: ask_stream(self._checked, claimed, told, on_delta, sent, timeout)
        )

    def _asked(self, claimed: Claimed, body: bytes | Mapping[str, Any]) -> dict[str, Any]:
        return upstream_request(body, claimed.episode_type, self.models, self.settings.temperature)

    async def _call(
        self, claimed: Claimed, call: Callable[[], Awaitable[ChatAnswer]]
    ) -> ChatAnswer:
        for tries in range(1, TRIES + 1):
            await self._pause.wait()
            try:
                answer = await call()
            except ChatError as error:
                self._note(error)
                if error.kind is not ChatErrorKind.LIMITED or not self._pause.extend(error, tries):
                    raise
            else:
                self.trouble = ""
                self._busy.discard(claimed.episode_uuid)
                return answer
        raise AssertionError("the last try returns or raises")

    def _note(self, error: ChatError) -> None:
        """Record what a failure means for the upstream itself."""
        if error.kind is ChatErrorKind.UNREACHABLE:
            self._doubted, self._next_look = True, 0.0
        elif error.kind is ChatErrorKind.UNAUTHORIZED:
            self.trouble = f"key refused ({error.status})"
        elif error.status in (404, 405):
            self.trouble = f"{error.status}: {hide(error.text, self.key)[:200]}"
        elif 300 <= error.status < 400:
            self.trouble = error.text
        elif error.status in LATER:
            self.trouble = f"too many requests for it ({error.status})"


async def token_paths(
    transport: Transport, url: str, model: str, headers: Mapping[str, str]
) -> frozenset[str]:
    """Return the paths for tokens, if an upstream that describes no paths counts tokens.

    Args:
        transport: How requests travel.
        url: The upstream's address.
        model: One of its models; empty when none is known.
        headers: Those that let us in.

    Raises:
        SwarmError: no answer.
    """
    answer = await transport.request(
        Request(
            "POST",
            f"{url}/tokenize",
            body=msgspec.json.encode({**PROBE, "model": model} if model else PROBE),
            headers={**headers, "Content-Type": "application/json"},
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
