"""GGUF files: metadata and tensors, read on request.

Source: the format's description in the ggml project (docs/gguf.md, version 3) and its block layouts
(ggml-common.h). Supported types are those of small models: F32, F16, Q4_0, Q4_1, Q8_0.
"""

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ajet_swarm.common.errors import AjetError

_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
"""`struct` codes by the format's type numbers."""
_TEXT, _LIST = 8, 9
_MAX_DIMENSIONS, _MAX_TENSORS = 4, 65536
_ALIGNMENT = 32

Floats = NDArray[np.float32]


class GgufError(AjetError):
    """A file is not GGUF, is damaged, or has unsupported content; `where` is the file."""


def _f32(raw: NDArray[np.uint8]) -> Floats:
    return raw.view("<f4").astype(np.float32, copy=False)


def _f16(raw: NDArray[np.uint8]) -> Floats:
    return raw.view("<f2").astype(np.float32)


def _nibbles(blocks: NDArray[np.uint8]) -> Floats:
    """Return (n, 16) bytes as (n, 32) values: the low halves first, then the high ones."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=1).astype(np.float32)


def _q4_0(raw: NDArray[np.uint8]) -> Floats:
    blocks = raw.reshape(-1, 18)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return ((_nibbles(blocks[:, 2:]) - 8) * scale).ravel()


def _q4_1(raw: NDArray[np.uint8]) -> Floats:
    blocks = raw.reshape(-1, 20)
    facts = blocks[:, :4].copy().view("<f2").astype(np.float32)
    return (_nibbles(blocks[:, 4:]) * facts[:, :1] + facts[:, 1:]).ravel()


def _q8_0(raw: NDArray[np.uint8]) -> Floats:
    blocks = raw.reshape(-1, 34)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    return (blocks[:, 2:].view(np.int8).astype(np.float32) * scale).ravel()


@dataclass(frozen=True, slots=True)
class _TensorType:
    name: str
    block: int
    """Numbers per block."""
    size: int
    """Bytes per block."""
    read: Callable[[NDArray[np.uint8]], Floats]


_TENSOR_TYPES = {
    0: _TensorType("F32", 1, 4, _f32),
    1: _TensorType("F16", 1, 2, _f16),
    2: _TensorType("Q4_0", 32, 18, _q4_0),
    3: _TensorType("Q4_1", 32, 20, _q4_1),
    8: _TensorType("Q8_0", 32, 34, _q8_0),
}


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    shape: tuple[int, ...]
    """Row-major; the file lists the fastest dimension first."""
    kind: int
    offset: int


class Gguf:
    """An open GGUF file. Use it as a context manager.

    Args:
        path: The file.

    Raises:
        GgufError: it cannot be read, or its header is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            raise GgufError(f"The model file cannot be read ({error})", str(path)) from error
        self.metadata: dict[str, Any] = {}
        """Scalars, texts and lists by key."""
        self._infos: dict[str, _TensorInfo] = {}
        try:
            self._header()
        except BaseException:
            self._data.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._data.close()

    @property
    def tensors(self) -> tuple[str, ...]:
        """Tensor names, in file order."""
        return tuple(self._infos)

    def get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """Return a metadata value.

        Raises:
            GgufError: it is missing or of another type.
        """
        value = self.metadata.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._error(f"the metadata's `{key}` is missing or of another type")
        return value

    def tensor(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Return a tensor of the given shape in float32; a matrix is (outputs, inputs).

        Raises:
            GgufError: it is missing, of another shape, or of an unsupported type.
        """
        info = self._infos.get(name)
        if info is None:
            raise self._error(f"the tensor {name} is missing")
        if info.shape != shape:
            raise self._error(f"the tensor {name} is {info.shape}, not {shape}")
        kind = _TENSOR_TYPES.get(info.kind)
        if kind is None:
            supported = ", ".join(tensor_type.name for tensor_type in _TENSOR_TYPES.values())
            raise self._error(
                f"the tensor {name} is of type {info.kind}; supported are {supported}"
            )
        if shape[-1] % kind.block:
            raise self._error(f"the tensor {name} has rows of {shape[-1]}, no whole blocks")
        size = math.prod(shape) // kind.block * kind.size
        if info.offset + size > len(self._data):
            raise self._error(f"the tensor {name} ends after the end of the file")
        raw = np.frombuffer(self._data[info.offset : info.offset + size], np.uint8)
        return kind.read(raw).reshape(shape)

    def _header(self) -> None:
        if self._data[:4] != b"GGUF":
            raise self._error("it does not begin with GGUF")
        self._at = 4
        version = self._number("I")
        if version not in (2, 3):
            raise self._error(f"its version is {version}, 2 and 3 are read")
        tensors, pairs = self._number("Q"), self._number("Q")
        if max(tensors, pairs) > _MAX_TENSORS:
            raise self._error("its header declares too many tensors or keys")
        for _ in range(pairs):
            key = self._text()
            self.metadata[key] = self._value(self._number("I"))
        infos = [self._tensor_info() for _ in range(tensors)]
        step = self.metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(step, int) or step < 1:
            raise self._error("its alignment is not a number of bytes")
        start = -(-self._at // step) * step
        for name, info in infos:
            self._infos[name] = _TensorInfo(info.shape, info.kind, info.offset + start)

    def _tensor_info(self) -> tuple[str, _TensorInfo]:
        name, count = self._text(), self._number("I")
        if count > _MAX_DIMENSIONS:
            raise self._error(f"the tensor {name:.100} has {count} dimensions")
        sizes = tuple(self._number("Q") for _ in range(count))
        return name, _TensorInfo(sizes[::-1], self._number("I"), self._number("Q"))

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack("<" + code, self._bytes(struct.calcsize("<" + code)))
        return value

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise self._error("its header ends after the end of the file")
        self._at += count
        return self._data[self._at - count : self._at]

    def _text(self) -> str:
        return self._bytes(self._number("Q")).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind == _LIST:
            inner, count = self._number("I"), self._number("Q")
            if count > len(self._data) or inner == _LIST:
                raise self._error("a list of its metadata cannot be read")
            return [self._value(inner) for _ in range(count)]
        code = _SCALARS.get(kind)
        if code is None:
            raise self._error(f"its metadata holds a value of the unknown type {kind}")
        return self._number(code)

    def _error(self, what: str) -> GgufError:
        return GgufError(f"The model file is damaged or of another kind: {what}", str(self._path))
