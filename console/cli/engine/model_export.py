"""Export of a policy of the torch backend as a folder: an adapter, or a whole model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError
from console.cli.common import say


class ModelExport:
    """Writes the weights that an engine exports as a folder.

    Args:
        fields: The engine's description of the model.
        target: The folder, which must be new or empty.
        merge: Write the base model with the adapter merged into it.
        half: Weights in float16.

    Raises:
        AjetError: the description cannot be read, or `target` is not free.
    """

    def __init__(self, fields: Mapping[str, Any], target: Path, *, merge: bool, half: bool) -> None:
        from engine.torch.description import ModelDescription
        from engine.torch.export import check_free

        try:
            self._description = msgspec.convert(fields, ModelDescription)
        except msgspec.ValidationError as error:
            raise AjetError(
                f"the engine's description of the model cannot be read ({error!r})",
                "/ajetc/checkpoints/model",
                "The engine has another version of ajet-console: use the same here",
            ) from error
        check_free(target)
        self._target, self._half = target, half
        self._whole = merge or self._description.kind == "full"

    @property
    def half_weights(self) -> bool:
        """Whether the engine's weights are needed in float16; a merge is exact with float32."""
        return self._half and not self._whole

    def write(self, name: str, weights: bytes) -> None:
        """Write the folder.

        Args:
            name: Of the checkpoint.
            weights: The engine's export.

        Raises:
            AjetError: the base model is not on this machine, or the folder cannot be written.
        """
        from engine.torch.export import export_folder

        export_folder(
            self._description,
            weights,
            self._target,
            merge=self._whole,
            dtype="float16" if self._half else "",
            progress=say,
        )
        what = "a model of transformers" if self._whole else "a PEFT adapter"
        size = sum(path.stat().st_size for path in self._target.rglob("*") if path.is_file())
        say(f"{name} written to {self._target}, {size / 1e6:.1f} MB, {what}")
