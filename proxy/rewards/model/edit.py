"""Editing values in the file of the rewards; comments, order and everything else are preserved."""

from collections.abc import Sequence
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import did_you_mean
from ajet_swarm.common.yaml_positions import compose, named_nodes
from core.settings import edit
from proxy.rewards.model.file import DEFAULT_TEXT, ModelFault, parse, read
from proxy.rewards.model.spec import RewardModel

Value = float | bool
Change = tuple[str, str, Value]
"""Part, field, value."""


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
    write(file, text)
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


def write(file: Path, text: str) -> None:
    """Replace the file atomically: a reader sees the old text or the new one.

    Raises:
        AjetError: the file cannot be written.
    """
    edit.write(file, text, "the rewards")


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6f}".rstrip("0").rstrip(".")


__all__ = ["Change", "ModelFault", "change", "edited", "write"]
