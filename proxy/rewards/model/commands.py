"""Commands that change the rewards while they are in use."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ajet_swarm.common.errors import AjetError
from core.events import RewardPart
from proxy.rewards.model.edit import Change, change
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.source import RewardSource


def parts_of(source: RewardSource) -> tuple[RewardPart, ...]:
    """Return the parts that the rewards consist of now."""
    return source.parts() if isinstance(source, ComposedSource) else ()


def kind_of(source: RewardSource, name: str) -> str:
    """Return the kind of a part of the newest rewards; empty if no part has that name."""
    return source.kind_of(name) if isinstance(source, ComposedSource) else ""


def _without_effect(part: RewardPart | None) -> str:
    """Return why the weight of a part has no effect: it is a gate, or off. Empty if it has one."""
    if part is not None and part.gate:
        return " (ignored while it is a gate)"
    return " (ignored while it is off)" if part is not None and not part.enabled else ""


class RewardCommands:
    """Commands that change parts: they write the model's file and load it again.

    Args:
        source: The reward source in use.
    """

    def __init__(self, source: RewardSource) -> None:
        self._source = source
        self._lock = asyncio.Lock()
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "rewards.weight": lambda args: self.weight(args["part"], args["weight"]),
            "rewards.gate": lambda args: self.gate(args["part"], args["on"]),
            "rewards.enable": lambda args: self.enable(args["part"], args["on"]),
        }

    async def weight(self, part: str, weight: float) -> str:
        """Set a part's weight, or its share where it has one.

        Raises:
            AjetError: the weight cannot be set; gives the reason.
        """
        return await self.weights({part: weight})

    async def weights(self, weights: Mapping[str, float]) -> str:
        """Set the weights or shares of several parts in one step: one new version, or none.

        Raises:
            AjetError: one of them cannot be set; gives the reason.
        """
        known = {part.name: part for part in parts_of(self._source)}
        summary = ", ".join(
            f"{name} has weight {weight:g}{_without_effect(known.get(name))}"
            for name, weight in weights.items()
        )
        changes = [(part, "weight", value) for part, value in weights.items()]
        return await self._set(changes, summary)

    async def gate(self, part: str, on: bool) -> str:
        """Make a part a gate, or a summand again."""
        summary = f"{part} is {'a gate' if on else 'no gate'}"
        return await self._set([(part, "gate", on)], summary)

    async def enable(self, part: str, on: bool) -> str:
        """Switch a part on or off."""
        return await self._set([(part, "enabled", on)], f"{part} is {'on' if on else 'off'}")

    async def _set(self, changes: Sequence[Change], summary: str) -> str:
        source = self._source
        if not isinstance(source, ComposedSource) or source.file is None:
            raise AjetError(
                "a hook folder alone makes the reward",
                todo="Leave --hooks out and name the folder in rewards.yaml: "
                "`mine: {kind: hook, folder: DIR}`",
            )
        async with self._lock:
            await asyncio.to_thread(change, source.file, changes)
            await source.reload()
        health = source.health()
        if not health.ok:
            why = health.error.cause if health.error else "its parts are starting"
            return f"written to {source.file}, but not loaded: {why}"
        return f"{summary}: it applies from the next group, version {source.version}"
