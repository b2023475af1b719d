"""Reader and writer of the safetensors file format.

A file is the length of its header (8 bytes, little-endian), the header as JSON, then the tensors'
bytes without gaps. Source: the format's published description (huggingface/safetensors, README).
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.interface import CheckpointError

MAX_HEADER = 100_000_000
_WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
_METADATA = "__metadata__"


class SafetensorsError(CheckpointError):
    """A file breaks the format or lacks a required tensor; `where` names the field."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Bytes of one tensor, little-endian, row-major."""

    dtype: str
    """Name in the format: `F32`, `F16`, ..."""
    shape: tuple[int, ...]
    data: bytes | memoryview


def pack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return a file with the tensors in the given order; the header is padded to align them."""
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((struct.pack("<Q", len(text)), text, *(t.data for t in tensors.values())))


def unpack(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file, without copies, and its metadata.

    Raises:
        SafetensorsError: the file breaks the format; names the field.
    """
    if len(data) < 8:
        raise SafetensorsError(f"The file has {len(data)} bytes, no room for a header", "header")
    (length,) = struct.unpack_from("<Q", data)
    if length > min(MAX_HEADER, len(data) - 8):
        raise SafetensorsError(f"Its length is {length}, more than the file may have", "header")
    header = _header(data[8 : 8 + length])
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise SafetensorsError("It must map names to texts", _METADATA)
    body = memoryview(data)[8 + length :]
    spans: list[tuple[int, int, str]] = []
    tensors = {}
    for name, entry in header.items():
        begin, end, shape = _check_entry(name, entry)
        spans.append((begin, end, name))
        tensors[name] = Tensor(entry["dtype"], shape, body[begin:end])
    _check_spans(spans, len(body))
    return tensors, metadata


def _header(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise SafetensorsError("It does not begin with '{'", "header")
    try:
        header: dict[str, Any] = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"It is no JSON ({error})", "header") from error
    return header


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    header = dict(pairs)
    if len(header) != len(pairs):
        raise ValueError("a name occurs twice")
    return header


def _check_entry(name: str, entry: Any) -> tuple[int, int, tuple[int, ...]]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise SafetensorsError("It must have dtype, shape and data_offsets, nothing else", name)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    width = _WIDTHS.get(dtype) if isinstance(dtype, str) else None
    if width is None:
        raise SafetensorsError(f"{dtype!r:.40} is not a supported type", f"{name}.dtype")
    if not _sizes(shape):
        raise SafetensorsError("It must be a list of whole numbers from 0", f"{name}.shape")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise SafetensorsError("They must be a begin and an end", f"{name}.data_offsets")
    if offsets[1] - offsets[0] != width * math.prod(shape):
        raise SafetensorsError(
            f"{offsets[1] - offsets[0]} bytes are named, its shape and type need "
            f"{width * math.prod(shape)}",
            f"{name}.data_offsets",
        )
    return offsets[0], offsets[1], tuple(shape)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_spans(spans: list[tuple[int, int, str]], total: int) -> None:
    """Check that the tensors cover the bytes exactly once, without gaps."""
    at = 0
    for begin, end, name in sorted(spans):
        if begin != at:
            raise SafetensorsError(
                f"It begins at {begin}, the one before it ends at {at}", f"{name}.data_offsets"
            )
        at = end
    if at != total:
        raise SafetensorsError(f"The tensors have {at} bytes, the file has {total}", "data_offsets")
