"""Exported weights as a folder that transformers, PEFT and vLLM load.

torch, transformers and peft are imported when a whole model is written; an adapter needs none.
"""

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from engine.storage import safetensors
from engine.storage.new_folder import new_folder
from engine.storage.safetensors import Tensor
from engine.torch.adapters import CARD, write_adapter
from engine.torch.base_files import BaseFiles, ModelLoadError, form_text, locate
from engine.torch.description import ModelDescription
from engine.torch.model_card import model_card
from engine.torch.packages import peft_before_renaming, quiet, require


def check_free(target: Path) -> None:
    """Check that a folder can be written.

    Raises:
        UsageError: a file, or a folder that is not empty, has this path.
    """
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise UsageError("it exists already", str(target), "Name a new folder")


def export_folder(
    description: ModelDescription,
    weights: bytes,
    target: Path,
    *,
    merge: bool,
    progress: Callable[[str], None],
    dtype: str = "",
) -> None:
    """Write the adapter, or the whole model, as a new folder; it appears complete or not at all.

    Args:
        description: The base model and the form of training.
        weights: The trained tensors with their metadata, as an engine exports them.
        target: A new or empty folder.
        merge: Write the base model with the adapter merged into it. Full weights always become a
            whole model.
        progress: Called with a line about each stage that takes long.
        dtype: Of a whole model's weights: `float32`, `float16` or `bfloat16`; empty for that of the
            policy.

    Raises:
        UsageError: `target` is not free.
        AjetError: packages or the files of the base model are missing on this machine, the weights
            do not fit it, or the folder cannot be written.
    """
    check_free(target)
    tensors, metadata = safetensors.unpack(weights)
    step, run = int(metadata.get("step", "0")), metadata.get("run", "")
    whole = merge or description.kind == "full"
    model = _load(description, tensors, weights, dtype, progress) if whole else None
    try:
        with new_folder(target) as folder:
            if model is None:
                write_adapter(folder, weights, description, step, run)
            else:
                progress("writing the model")
                model.save(folder)
                (folder / CARD).write_text(model_card(description, step, run), "utf-8")
    except OSError as error:
        raise AjetError(
            f"the folder cannot be written: {error.strerror or error}", str(target)
        ) from error


class _WholeModel:
    """A model with its tokenizer, as transformers saves them."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._parts = (model, tokenizer)

    def save(self, folder: Path) -> None:
        """Write weights, configuration, tokenizer and chat template.

        All files are readable as the configuration is: safetensors writes files that only their
        owner can read, which another user's server cannot load.
        """
        for part in self._parts:
            part.save_pretrained(folder)
        mode = (folder / "config.json").stat().st_mode & 0o777
        for weights in folder.glob("*.safetensors"):
            weights.chmod(mode)


def _load(
    description: ModelDescription,
    tensors: Mapping[str, Tensor],
    weights: bytes,
    dtype: str,
    progress: Callable[[str], None],
) -> _WholeModel:
    """Return the base model with the trained weights, on the CPU."""
    require(gguf=description.gguf)
    quiet()
    files = _base_files(description)
    place = str(files.path)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.torch.loading import reported

    dtype = dtype or description.dtype
    progress(f"loading the base model {place} in {dtype}")
    with reported(place):
        model = AutoModelForCausalLM.from_pretrained(
            files.place, dtype=getattr(torch, dtype), **files.model_arguments()
        )
        tokenizer = AutoTokenizer.from_pretrained(files.place, **files.tokenizer_arguments())
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None and description.gguf:  # the weights are plain ones: they can be saved
        quantizer.remove_quantization_config(model)
    if description.kind == "full":
        _put(model, tensors, place)
        return _WholeModel(model, tokenizer)
    progress("merging the adapter")
    return _WholeModel(_merged(model, description, tensors, weights, place), tokenizer)


def _base_files(description: ModelDescription) -> BaseFiles:
    """Return the files of the base model on this machine.

    Raises:
        AjetError: they are missing, or differ from those that were trained.
    """
    names = [description.base_files, description.hub_name]
    for name in filter(None, names):
        with contextlib.suppress(ModelLoadError):
            files = locate(name)
            break
    else:
        fetch = "Copy them to this path"
        if description.hub_name:
            fetch = f"Fetch them with `hf download {description.hub_name}`"
        raise AjetError(
            "the files of the base model are not on this machine",
            description.base_name,
            f"{fetch}, or run the export on the machine of the engine",
        )
    form = form_text(description.rank, description.alpha, description.targets)
    try:
        digest = files.digest(form)
    except OSError as error:
        raise AjetError(
            f"the base model cannot be read ({error.strerror})", str(files.path)
        ) from error
    if digest != description.base:
        raise _misfit(str(files.path), "its files differ from those that the engine trains")
    return files


def _put(model: Any, tensors: Mapping[str, Tensor], place: str) -> None:
    """Copy full weights into the model."""
    import torch

    parameters = dict(model.named_parameters())
    _check(tensors, {name: tuple(parameter.shape) for name, parameter in parameters.items()}, place)
    with torch.no_grad():
        for name, tensor in tensors.items():
            kind = torch.float16 if tensor.dtype == "F16" else torch.float32
            values = torch.frombuffer(bytearray(tensor.data), dtype=kind)
            parameters[name].copy_(values.view(tensor.shape))


def _merged(
    model: Any,
    description: ModelDescription,
    tensors: Mapping[str, Tensor],
    weights: bytes,
    place: str,
) -> Any:
    """Return the model with the adapter merged into its weights."""
    from peft import PeftModel

    with tempfile.TemporaryDirectory() as temporary:
        write_adapter(Path(temporary), weights, description, 0, "")
        try:
            with peft_before_renaming():
                adapted = PeftModel.from_pretrained(model, temporary)
        except (ValueError, RuntimeError) as error:  # no such modules, or other sizes
            raise _misfit(place, str(error).splitlines()[0]) from error
    _check(
        tensors,
        {
            name.replace(".default.", "."): tuple(parameter.shape)
            for name, parameter in adapted.named_parameters()
        },
        place,
    )
    return adapted.merge_and_unload()


def _check(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], place: str
) -> None:
    for name, tensor in tensors.items():
        if shapes.get(name) != tensor.shape:
            raise _misfit(place, f"it has no {name} of shape {list(tensor.shape)}")


def _misfit(place: str, why: str) -> AjetError:
    return AjetError(
        f"the trained weights do not fit this base model: {why}",
        place,
        "Export on the machine of the engine, or fetch the model that the engine trains",
    )
