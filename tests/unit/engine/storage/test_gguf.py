"""GGUF files: precomputed blocks, and broken files."""

import struct
from pathlib import Path

import numpy as np
import pytest

from engine.storage.gguf import Gguf, GgufError
from tests.support.engine.small_gguf import Stored, make, metadata, write


def _read(tmp_path: Path, kind: int, shape: tuple[int, ...], data: bytes) -> list[float]:
    path = tmp_path / "one.gguf"
    write(path, {"a": 1}, {"first": Stored(0, (3,), b"\1" * 12), "x": Stored(kind, shape, data)})
    with Gguf(path) as file:
        values: list[float] = file.tensor("x", shape).ravel().tolist()
    return values


def test_plain_numbers(tmp_path: Path) -> None:
    wanted = [1.5, -2.0, 0.25, 3.0]
    assert _read(tmp_path, 0, (2, 2), struct.pack("<4f", *wanted)) == wanted
    assert _read(tmp_path, 1, (2, 2), struct.pack("<4e", *wanted)) == wanted


def test_four_bits_with_scale_and_least(tmp_path: Path) -> None:
    """The low halves of the bytes are the first sixteen numbers, the high ones the rest."""
    packed = bytes(i | (15 - i) << 4 for i in range(16))
    read = _read(tmp_path, 3, (1, 32), struct.pack("<ee", 0.5, -2.0) + packed)
    assert read == [0.5 * i - 2 for i in range(16)] + [0.5 * (15 - i) - 2 for i in range(16)]


def test_four_bits_around_zero(tmp_path: Path) -> None:
    packed = bytes(i | (15 - i) << 4 for i in range(16))
    read = _read(tmp_path, 2, (1, 32), struct.pack("<e", 0.25) + packed)
    assert read == [0.25 * (i - 8) for i in [*range(16), *reversed(range(16))]]


def test_eight_bits(tmp_path: Path) -> None:
    first, second = range(-16, 16), [127, -128, *[0] * 30]
    data = struct.pack("<e32b", 0.5, *first) + struct.pack("<e32b", 2.0, *second)
    assert _read(tmp_path, 8, (2, 32), data) == [0.5 * i for i in first] + [2.0 * i for i in second]


def test_metadata_of_each_kind(tmp_path: Path) -> None:
    wanted = {"n": 7, "x": 0.5, "flag": True, "name": "größe", "list": ["a", "b c"], "ids": [3, 1]}
    path = tmp_path / "meta.gguf"
    write(path, wanted, {})
    with Gguf(path) as file:
        assert file.metadata == wanted
        assert file.get("n", int) == 7
        for key, kind in (("n", str), ("flag", int), ("gone", int)):
            with pytest.raises(GgufError, match=f"`{key}`"):
                file.get(key, kind)


def test_unexpected_content_is_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    tensors = {"x": Stored(0, (2,), b"\0" * 8), "k": Stored(12, (256,), b"\0" * 144)}
    write(path, {"a": 1}, {**tensors, "part": Stored(8, (1, 40), b"\0" * 68)})
    with Gguf(path) as file:
        assert file.tensors == ("x", "k", "part")
        for name, shape, value in (
            ("y", (2,), "y is missing"),
            ("x", (3,), r"x is \(2,\), not \(3,\)"),
            ("k", (256,), "k is of type 12"),
            ("part", (1, 40), "no whole blocks"),
        ):
            with pytest.raises(GgufError, match=value):
                file.tensor(name, shape)


@pytest.mark.slow
def test_a_file_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    small = make(tmp_path / "whole.gguf")
    data = small.path.read_bytes()
    cut = tmp_path / "cut.gguf"
    name, values = "output_norm.weight", small.weights["output_norm.weight"]
    for size in (*range(0, 200, 7), 2000, 9000, len(data) // 2, len(data) - 40):
        cut.write_bytes(data[:size])
        with pytest.raises(GgufError, match=r"damaged|cannot be read"), Gguf(cut) as file:
            file.tensor(name, values.shape)
    with Gguf(small.path) as file:
        np.testing.assert_array_equal(file.tensor(name, values.shape), values)


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (b"not a model file at all", "does not begin"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version is 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "too many tensors"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60), "ends after"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"a", 99), "unknown type 99"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"a", 9, 4, 2**60), "a list"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 1, 0, 1, b"a", 9), "9 dimensions"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, data: bytes, result: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(data)
    with pytest.raises(GgufError, match=result):
        Gguf(path)
    path.unlink()
    with pytest.raises(GgufError, match="cannot be read"):
        Gguf(path)


def test_an_alignment_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    write(path, metadata(**{"general.alignment": 0}), {})
    with pytest.raises(GgufError, match="alignment"):
        Gguf(path)
