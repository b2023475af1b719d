"""Commands that change the file of the rewards while they are in use.

Comments, order and everything else in the file are preserved.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import did_you_mean
from ajet_swarm.common.yaml_positions import compose, named_nodes
from core.events import RewardPart
from core.settings import edit
from proxy.rewards.model.file import DEFAULT_TEXT, parse, read
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.model.spec import RewardModel
from proxy.rewards.source import RewardSource

Value = float | bool
Change = tuple[str, str, Value]
"""Part, field, value."""


def parts_of(source: RewardSource) -> tuple[RewardPart, ...]:
    """Return the parts that the rewards consist of."""
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
        self.table: Mapping[str, Callable[..., Awaitable[str]]] = {
            "rewards.weight": self.weight,
            "rewards.gate": self.gate,
            "rewards.enable": self.enable,
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


def change(file: Path, changes: Sequence[Change]) -> RewardModel:
    """Set fields of parts in one step and save the file, or change nothing.

    A file that does not exist yet is created from the built-in model.

    Args:
        file: File of the model.
        changes: Part, field and value of each change.

    Returns:
        The model after the changes.

    Raises:
        ModelFault: the file is invalid now, or would be after the changes.
        AjetError: there is no such part, or the file cannot be written.
    """
    text = read(file) if file.exists() else DEFAULT_TEXT
    model = parse(text, file)
    requested = [_change(model, file, *wanted) for wanted in changes]
    for wanted in requested:
        text = edited(text, *wanted)
    changed = parse(text, file)
    for part, field, value in requested:
        spec = changed.named(part)
        if spec is None or abs(getattr(spec, field) - value) > 1e-6:
            raise AjetError(
                f"`{part}` cannot be changed from here", str(file),
                "Edit the file: it uses an alias",
            )  # fmt: skip
    edit.write(file, text, "the rewards")
    return changed


def _change(model: RewardModel, file: Path, part: str, field: str, value: Value) -> Change:
    """Return the change to write; a part with a share has no weight of its own."""
    spec = model.named(part)
    if spec is None:
        names = ", ".join(part.name for part in model.parts)
        raise AjetError(
            f"the rewards have no part `{part:.40}`",
            str(file),
            f"{did_you_mean(part, names.split(', '))} There are: {names}".strip(),
        )
    if field == "weight" and spec.share is not None:
        field = "share"
    return part, field, value


def edited(text: str, part: str, field: str, value: Value) -> str:
    """Return `text` with one field of one part set.

    Raises:
        AjetError: the field is in a place where it cannot be edited.
    """
    parts = dict(named_nodes(compose(text)))["parts"]
    node = dict(named_nodes(parts))[part]
    if sum(other is node for _, other in named_nodes(parts)) > 1:
        raise AjetError(f"`{part}` is an alias of another part", todo="Edit the file")
    return edit.put(text, ("parts", part, field), _literal(value))


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6f}".rstrip("0").rstrip(".")
