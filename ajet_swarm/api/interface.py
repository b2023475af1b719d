"""Interface of a client of one server: a method for each route."""

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, Unpack

from ajet_swarm.api.chat import ChatOptions
from ajet_swarm.api.outcomes import AbortKind, ChatAnswer, Claimed, ClaimRefused, EndOutcome
from ajet_swarm.api.wire import GENERAL, QUICK
from ajet_swarm.http.interface import Transport
from ajet_swarm.protocol.schemas import (
    EngineStatus,
    EpisodeRecord,
    PoolInfo,
    VerboseLog,
    WireOutput,
)


class SwarmApi(Protocol):
    """Client of one server. `ajet_swarm.api.wire.SwarmWire` documents each method.

    Attributes:
        url: Address of the server, without a trailing slash.
        transport: Transport of the requests.
        client_uuid: Identity of this client at the server.
        name: Name of the server in messages.
        stopped_at: Unix seconds at which this client last stopped the engine; 0 for never.
        context_length: Context window in tokens, if the server lists it with its models.
        trouble: What is wrong with a server that answers; empty if nothing is.
    """

    url: str
    transport: Transport
    client_uuid: str
    name: str
    stopped_at: float
    context_length: int | None
    trouble: str

    # --- the engine -----------------------------------------------------------------------------

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """Return the state of the engine."""

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """Return the progress of the batch."""

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """Return the paths of the server's routes."""

    async def is_embedded(self) -> bool:
        """Return whether the server is the embedded engine."""

    async def prepared(self, yaml: str) -> str:
        """Check a job and return it as `sync_train_config` sends it."""

    async def sync_train_config(self, yaml: str) -> str:
        """Store the job that the next start runs."""

    async def start_engine(self) -> int | None:
        """Start training."""

    async def stop_engine(self) -> None:
        """Stop training."""

    async def agree_sync_weight(self) -> bool:
        """Agree to end the batch."""

    async def verbose_logs(self) -> list[VerboseLog]:
        """Return the server's latest log lines."""

    async def experiment_dir(self) -> str | None:
        """Return the folder in which the server writes its run."""

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

    async def abort(
        self,
        episode_uuid: str,
        task_id: str = "",
        declare_client_active: bool = False,
        *,
        timeout: float = GENERAL,
    ) -> AbortKind:
        """Give an episode back."""

    async def can_continue(self, episode_uuid: str) -> bool | None:
        """Return whether an episode can go on; None if that is unknown."""

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """Return all live episodes of all clients."""

    def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        **options: Unpack[ChatOptions],
    ) -> Awaitable[ChatAnswer]:
        """Request a chat completion."""
