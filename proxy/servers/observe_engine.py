"""The engine methods of `SwarmApi` for an upstream without an engine."""

from typing import NoReturn

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import VerboseLog


class NoEngine:
    """Base of a `SwarmApi` without an engine: it trains nothing and has no episodes of its own."""

    async def prepared(self, yaml: str) -> str:
        """Raise SwarmError: nothing is trained."""
        _no_engine()

    async def sync_train_config(self, yaml: str) -> str:
        """Raise SwarmError: nothing is trained."""
        _no_engine()

    async def start_engine(self) -> int | None:
        """Raise SwarmError: nothing is trained."""
        _no_engine()

    async def stop_engine(self) -> None:
        """Raise SwarmError: nothing is trained."""
        _no_engine()

    async def agree_sync_weight(self) -> bool:
        """Return False: there are no weights to sync."""
        return False

    async def verbose_logs(self) -> list[VerboseLog]:
        """Return nothing: an upstream has no log route."""
        return []

    async def experiment_dir(self) -> str | None:
        """Return None: an upstream has no experiment folder."""
        return None


def _no_engine() -> NoReturn:
    raise SwarmError(
        "there is no engine: in observe mode nothing is trained",
        todo="Pass a swarm server with --swarm-url to train",
    )
