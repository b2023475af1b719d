"""What the watcher, the claims and the proxy need of a server: its routes as methods."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from ajet_swarm.api.chat import CHAT
from ajet_swarm.api.chat_stream import OnDelta
from ajet_swarm.api.outcomes import ChatAnswer, Claimed, ClaimRefused, EndOutcome
from ajet_swarm.api.wire import GENERAL, QUICK
from ajet_swarm.http.interface import Transport
from ajet_swarm.http.pending import PendingCall
from ajet_swarm.protocol.schemas import (
    EngineStatus,
    EpisodeRecord,
    PoolInfo,
    VerboseLog,
    WireOutput,
)


class SwarmApi(Protocol):
    """One server. `ajet_swarm.api.engine.AsyncSwarmClient` documents each method.

    Attributes:
        url: Address of the server, without a trailing slash.
        transport: How requests travel.
        client_uuid: Our name at the server.
        name: Name of the server, for people.
        stopped_at: Unix seconds at which this client last stopped the engine; 0 for never.
    """

    url: str
    transport: Transport
    client_uuid: str
    name: str
    stopped_at: float

    # --- the engine -----------------------------------------------------------------------------

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """Return what the engine is doing."""
        ...

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """Return how far the batch is."""
        ...

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """Return the paths the server serves."""
        ...

    async def is_embedded(self) -> bool:
        """Return whether the server is the embedded engine."""
        ...

    async def prepared(self, yaml: str) -> str:
        """Return a job as `sync_train_config` sends it."""
        ...

    async def sync_train_config(self, yaml: str) -> str:
        """Store the job that the next start runs."""
        ...

    async def start_engine(self) -> int | None:
        """Start training."""
        ...

    async def stop_engine(self) -> None:
        """Stop training."""
        ...

    async def agree_sync_weight(self) -> bool:
        """Agree to end the batch."""
        ...

    async def verbose_logs(self) -> list[VerboseLog]:
        """Return the server's latest log lines."""
        ...

    async def experiment_dir(self) -> str | None:
        """Return the folder in which the server writes its run."""
        ...

    # --- episodes -------------------------------------------------------------------------------

    async def claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
        throttle_policy: Mapping[str, Any] | None = None,
    ) -> Claimed | ClaimRefused:
        """Claim one episode."""
        ...

    def begin_claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
    ) -> PendingCall[Claimed | ClaimRefused] | None:
        """Send a claim now; None when it has to be sent with `claim`."""
        ...

    async def end(
        self,
        episode_uuid: str,
        task_id: str,
        output: WireOutput,
        declare_client_active: bool = True,
        *,
        timeout: float = GENERAL,
    ) -> EndOutcome:
        """Send an episode's reward."""
        ...

    def begin_end(
        self, episode_uuid: str, task_id: str, output: WireOutput, *, timeout: float = GENERAL
    ) -> PendingCall[EndOutcome] | None:
        """Send a reward now; None when it has to be sent with `end`."""
        ...

    async def abort(
        self,
        episode_uuid: str,
        task_id: str = "",
        declare_client_active: bool = False,
        *,
        timeout: float = GENERAL,
    ) -> bool:
        """Give an episode back."""
        ...

    async def can_continue(self, episode_uuid: str) -> bool | None:
        """Return whether an episode is still ours; None when that is unknown."""
        ...

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """Return all live episodes of all clients."""
        ...

    def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> Awaitable[ChatAnswer]:
        """Ask for a completion."""
        ...

    def begin_chat(
        self,
        claimed: Claimed,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> PendingCall[ChatAnswer] | None:
        """Ask for a completion now; None when that has to be done with `chat`."""
        ...

    def chat_stream(
        self,
        claimed: Claimed,
        body: Mapping[str, Any],
        on_delta: OnDelta,
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> Awaitable[ChatAnswer]:
        """Ask for a completion piece by piece."""
        ...
