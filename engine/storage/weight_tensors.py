"""Weights as tensors of a safetensors file: conversion and checks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.interface import CheckpointError
from engine.storage.safetensors import SafetensorsError, Tensor, unpack

_DTYPES = {"F32": "<f4", "F16": "<f2"}


def to_tensors(arrays: Mapping[str, NDArray[Any]], half: bool = False) -> dict[str, Tensor]:
    """Return float32 arrays as tensors; in float32 those share the memory of contiguous arrays.

    Args:
        arrays: The arrays by name.
        half: float16 instead of float32.

    Raises:
        CheckpointError: a number is too large for float16.
    """
    return {name: _to_tensor(name, array, half) for name, array in arrays.items()}


def _to_tensor(name: str, array: NDArray[Any], half: bool) -> Tensor:
    code = "F16" if half else "F32"
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, _DTYPES[code])
    if half and not np.isfinite(values).all():
        raise CheckpointError("A weight is too large for float16", name, "Export without --half")
    return Tensor(code, array.shape, values.reshape(-1).view(np.uint8).data)


def fill(arrays: Mapping[str, NDArray[Any]], tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into the arrays of the same names.

    Raises:
        SafetensorsError: a tensor is missing or unknown, has another shape, another type than F32
            and F16, or numbers that are not finite.
    """
    for name in tensors:
        if name not in arrays:
            raise SafetensorsError("The policy has no such tensor", name)
    for name, array in arrays.items():
        tensor, shape = tensors.get(name), array.shape
        if tensor is None:
            raise SafetensorsError("The tensor is missing", name)
        if tensor.shape != shape:
            raise SafetensorsError(
                f"The shape is {list(tensor.shape)}, the policy's is {list(shape)}", f"{name}.shape"
            )
        if tensor.dtype not in _DTYPES:
            raise SafetensorsError(
                f"The type is {tensor.dtype}, F32 and F16 can be read", f"{name}.dtype"
            )
        values = np.frombuffer(tensor.data, _DTYPES[tensor.dtype])
        if not np.isfinite(values).all():
            raise SafetensorsError("The tensor holds numbers that are not finite", name)
        array[...] = values.reshape(shape)


def fill_from(
    data: bytes, arrays: Mapping[str, NDArray[Any]], digest: str
) -> tuple[int, Mapping[str, str]]:
    """Copy exported weights into the arrays of the same names.

    Args:
        data: The weights as a safetensors file.
        arrays: Those of the policy.
        digest: Digest of the policy's base weights.

    Returns:
        Their global step, 0 when they name none, and the metadata.

    Raises:
        SafetensorsError: names the invalid field; see `fill`.
    """
    tensors, metadata = unpack(data)
    step = _step_of(metadata, digest)
    fill(arrays, tensors)
    return step, metadata


def _step_of(metadata: Mapping[str, str], digest: str) -> int:
    """Return the global step of weights.

    Raises:
        SafetensorsError: they are of another base, or the step is no number.
    """
    if metadata.get("base", digest) != digest:
        raise SafetensorsError(
            "The weights were trained from other base weights", "__metadata__.base"
        )
    step = metadata.get("step", "0")
    if not (step.isascii() and step.isdecimal() and len(step) < 10):
        raise SafetensorsError(f"{step!r:.40} is no global step", "__metadata__.step")
    return int(step)
