"""Models of Hugging Face: the local cache, the size and the download of a model.

huggingface_hub is imported on use: it is installed with transformers, not with this program.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Any

import httpx

from ajet_swarm.common.errors import AjetError
from engine.torch.files.check import INDEX, WEIGHTS, ModelLoadError, missing_file
from engine.torch.names import is_gguf

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[\w.-]+)?", re.ASCII)
_SMALL = re.compile(r"[^/]+\.(json|txt|model|jinja|tiktoken)|LICENSE[^/]*|tokenizer[^/]*")
"""Files beside the weights: configuration, tokenizer, template, license."""
_UNUSED = re.compile(r".*\.(bin|h5|msgpack|onnx)\.index\.json")
_SECONDS = 15.0
"""Time limit of a question to Hugging Face."""
_DISK = (EACCES, EDQUOT, EIO, ENOSPC, EROFS)
_ELSEWHERE = "or give the folder of a model that was downloaded on another machine"


class HubError(AjetError):
    """Hugging Face could not be asked, or a download failed."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on Hugging Face."""

    name: str
    files: Sequence[tuple[str, int]]
    """Name and bytes of the files to download; those with the weights come last."""
    license: str = ""
    """Empty when the model names none."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files)


def is_hub_name(model: str) -> bool:
    """Return whether a model is named like one on Hugging Face, and is no file on this disk."""
    named = _NAME.fullmatch(model) is not None and not is_gguf(model)
    return named and not Path(model).exists()


def cached_folder(name: str) -> Path | None:
    """Return the folder of a model in the local cache; None when it is not there as a whole."""
    from huggingface_hub import try_to_load_from_cache

    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name that Hugging Face can have
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        return None if missing_file(folder) else folder
    except ModelLoadError:
        return None


def look_up(name: str) -> HubModel:
    """Return the files of a model, as Hugging Face lists them now.

    Raises:
        ModelLoadError: there is no such model, it is gated, or it has no safetensors.
        HubError: Hugging Face could not be asked.
    """
    import huggingface_hub

    with _explained(name):
        info: Any = huggingface_hub.HfApi().model_info(name, files_metadata=True, timeout=_SECONDS)
    if getattr(info, "gated", False) and not huggingface_hub.get_token():
        raise _gated(name)
    sizes = {sibling.rfilename: int(sibling.size or 0) for sibling in info.siblings or ()}
    weights = sorted(siz for siz in sizes if WEIGHTS.fullmatch(siz))
    if INDEX in sizes and "model.safetensors" in weights and len(weights) > 1:
        weights.remove("model.safetensors")
    if "config.json" not in sizes or not weights:
        lacking = "config.json" if "config.json" not in sizes else "weights as safetensors"
        raise ModelLoadError(
            f"The model has no {lacking} on Hugging Face",
            name,
            "Name the model itself, not an adapter or a GGUF collection: a GGUF file is given by "
            "its path",
        )
    small = sorted(siz for siz in sizes if _SMALL.fullmatch(siz) and not _UNUSED.fullmatch(siz))
    card = getattr(info, "card_data", None)
    return HubModel(
        name=name,
        files=[(weight, sizes[weight]) for weight in (*small, *weights)],
        license=str(getattr(card, "license", None) or ""),
    )


def download(model: HubModel, on_file: Callable[[str, int], object]) -> Path:
    """Download a model into the local cache, one file after another, and return its folder.

    A file is in the cache when it is whole; the weights come last. A model that was interrupted is
    therefore never taken for a whole one, and the next download continues with the files it lacks.

    Args:
        model: From `look_up`.
        on_file: Called before each file with its name and size.

    Raises:
        ModelLoadError: the model is gated or private.
        HubError: the disk is too small, or the download failed.
    """
    from huggingface_hub import hf_hub_download

    _check_space(model)
    for name, size in model.files:
        on_file(name, size)
        with _explained(model.name):
            hf_hub_download(model.name, name)
    folder = cached_folder(model.name)
    if folder is None:
        raise HubError(
            "The model changed during its download", model.name, "Start again to complete it"
        )
    return folder


def _check_space(model: HubModel) -> None:
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    there = next((parent for parent in (cache, *cache.parents) if parent.is_dir()), None)
    free = model.size if there is None else shutil.disk_usage(there).free
    if free < model.size:
        raise HubError(
            f"The model has {model.size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free",
            str(cache),
            "Free space, or set HF_HOME to a folder on a larger disk",
        )


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Convert errors of huggingface_hub to ours."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise _gated(name) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelLoadError(
            "Hugging Face has no such model, or it is private",
            name,
            "Check the name; a private model needs HF_TOKEN, or `hf auth login`",
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise HubError(
            "The model is not in the local cache, and HF_HUB_OFFLINE forbids to ask Hugging Face",
            name,
            f"Unset HF_HUB_OFFLINE, {_ELSEWHERE}",
        ) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status in (401, 403):
            raise ModelLoadError(
                f"Hugging Face refuses access (HTTP {status})",
                name,
                "Check that HF_TOKEN, or the token of `hf auth login`, may read this model",
            ) from error
        raise HubError(
            f"Hugging Face answered HTTP {status}", name, f"Try again later, {_ELSEWHERE}"
        ) from error
    except errors.HFValidationError as error:
        raise ModelLoadError(
            "This is no name of a model on Hugging Face",
            name,
            "Give a name such as Qwen/Qwen3-0.6B, a folder, or a GGUF file",
        ) from error
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        if isinstance(error, OSError) and error.errno in _DISK:
            raise HubError(
                f"The download stopped: {error.strerror or error}",
                name,
                "Free space or correct the permissions, then start again: it continues",
            ) from error
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise HubError(
            f"The model is not in the local cache, and Hugging Face cannot be reached ({reason})",
            name,
            f"Check the network, {_ELSEWHERE}",
        ) from error


def _gated(name: str) -> ModelLoadError:
    return ModelLoadError(
        "The model is gated: Hugging Face gives it to those who accepted its terms",
        name,
        "Accept them on the model's page, then set HF_TOKEN or run `hf auth login`",
    )
