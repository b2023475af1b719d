"""What an upstream without an engine never does."""

from collections.abc import Mapping
from typing import NoReturn

from swarm.answers import Claimed
from swarm.chat import CHAT
from swarm.client import GENERAL, AsyncSwarmClient
from swarm.errors import SwarmError
from swarm.schemas import WorkflowOutput


class NoEngine(AsyncSwarmClient):
    """A client of something that trains nothing and knows no episodes."""

    # Nothing is sent for a claim or an end, and a call that is put off is made again.

    def begin_claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
    ) -> None:
        """Never: see `claim`."""

    def begin_end(
        self, episode_uuid: str, task_id: str, output: WorkflowOutput, *, timeout: float = GENERAL
    ) -> None:
        """Never: see `end`."""

    def begin_chat(
        self,
        claimed: Claimed,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> None:
        """Never: see `chat`."""

    async def sync_train_config(self, yaml: str) -> None:
        """Raises SwarmError: nothing is trained."""
        _no_engine()

    async def start_engine(self) -> int | None:
        """Raises SwarmError: nothing is trained."""
        _no_engine()

    async def stop_engine(self) -> None:
        """Raises SwarmError: nothing is trained."""
        _no_engine()

    async def agree_sync_weight(self) -> bool:
        """There are no weights to sync."""
        return False


def _no_engine() -> NoReturn:
    raise SwarmError(
        "there is no engine: in observe mode nothing is trained",
        todo="Name a swarm server with --swarm-url to train",
    )
