"""Devices of torch: which one is used, its types and its free memory."""

import logging
from typing import Any

import torch

from engine.torch.card import read_driver
from engine.torch.files.check import ModelLoadError
from engine.torch.names import check_device

log = logging.getLogger(__name__)

_FULL = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")
"""Texts of errors of CUDA, MPS, cuBLAS and the processor's allocator."""


def free_bytes(device: str) -> int:
    """Return the free memory of a device."""
    if device.startswith("cuda"):
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    import psutil

    return int(psutil.virtual_memory().available)


def card_uuid(device: str) -> str:
    """Return the uuid of an NVIDIA card; empty where torch does not report it."""
    if not device.startswith("cuda"):
        return ""
    try:
        return str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    except (RuntimeError, AssertionError):  # the driver failed, or a torch without CUDA
        return ""


def usable_device(name: str) -> str:
    """Return the device to use; the fastest one for an empty name.

    Raises:
        ModelLoadError: torch cannot use the device; says why.
    """
    check_device(name)
    if not name:
        if torch.cuda.is_available():
            return "cuda"
        if torch.backends.mps.is_available():
            return "mps"
        if driver := read_driver().version:
            log.warning("the CPU computes: %s", _no_cuda(driver))
        return "cpu"
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise ModelLoadError(
                _no_cuda(read_driver().version), f"--device {name}", "Run `ajet-console doctor`"
            )
        count = torch.cuda.device_count()
        if int(name.partition(":")[2] or 0) >= count:
            raise ModelLoadError(
                f"torch finds {count} card{'s' if count > 1 else ''}",
                f"--device {name}",
                f"Use cuda:0{f' to cuda:{count - 1}' if count > 1 else ''}",
            )
    if name.startswith("mps") and not torch.backends.mps.is_available():
        raise ModelLoadError("torch finds no Apple GPU", f"--device {name}", "Use --device cpu")
    return name


def _no_cuda(driver: str) -> str:
    """Return why torch has no CUDA.

    Args:
        driver: Version of the NVIDIA driver; empty without one.
    """
    built = torch.version.cuda
    if not driver:
        return "torch finds no NVIDIA card"
    if not built:
        return f"this torch is built without CUDA, beside an NVIDIA driver {driver}"
    return f"torch for CUDA {built} cannot use the NVIDIA driver {driver}"


def usable_dtype(name: str, device: str) -> Any:
    """Return the type of torch to compute with; for an empty name bfloat16 on an NVIDIA card that
    has it, else float32.

    Raises:
        ModelLoadError: the card lacks it.
    """
    if name:
        kind = getattr(torch, name)
        if kind is torch.bfloat16 and not has_bfloat16(device):
            raise ModelLoadError(
                "The card has no bfloat16", f"--dtype {name}", "Use --dtype float32"
            )
        return kind
    if device.startswith("cuda") and has_bfloat16(device):
        return torch.bfloat16
    return torch.float32


def has_bfloat16(device: str) -> bool:
    """Return whether a device computes with bfloat16; on older cards torch emulates it only."""
    if not device.startswith("cuda"):
        return True
    major, _ = torch.cuda.get_device_capability(device)
    return major >= 8 or torch.version.hip is not None


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error says that the memory of a device is full; only CUDA's has its own
    class."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(words in text for words in _FULL)
