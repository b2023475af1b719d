"""The safetensors format, against bytes written by hand from its published description."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interface import WeightsError
from engine.policy import weights
from engine.policy.weights import WeightStore
from engine.storage.safetensors import SafetensorsError, Tensor, pack, unpack
from engine.training.state import State

BASE = weights.shipped()

BY_HAND = (
    b"\x5b\x00\x00\x00\x00\x00\x00\x00"
    b'{"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}        '
    b"  "
    b"\x00\x00\x80\x3f"  # 1.0
    b"\x00\x00\x00\xc0"  # -2.0
)


def _file(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def _one(**facts: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **facts}}


def test_bytes_written_by_hand_are_read() -> None:
    tensors, metadata = unpack(BY_HAND)
    assert metadata == {"k": "v"}
    assert tensors["a"].shape == (1, 2)
    assert np.frombuffer(tensors["a"].data, "<f4").tolist() == [1.0, -2.0]


def test_the_written_file_follows_the_format() -> None:
    data = pack({"x": Tensor("F16", (3,), b"\x00\x3c" * 3), "y": Tensor("F32", (), bytes(4))}, {})
    (length,) = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    assert header == {
        "__metadata__": {},
        "x": {"dtype": "F16", "shape": [3], "data_offsets": [0, 6]},
        "y": {"dtype": "F32", "shape": [], "data_offsets": [6, 10]},
    }
    assert data[8 + length :] == b"\x00\x3c" * 3 + bytes(4)
    assert unpack(data)[0]["x"].data == b"\x00\x3c" * 3


def test_tensors_may_stand_in_another_order_than_their_bytes() -> None:
    header = {
        "b": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]},
        "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
        "none": {"dtype": "F32", "shape": [0, 7], "data_offsets": [2, 2]},
    }
    tensors, _ = unpack(_file(header, b"xyz"))
    assert {name: bytes(tensor.data) for name, tensor in tensors.items()} == {
        "a": b"xy", "b": b"z", "none": b"",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "header"),
        (b"\x01" * 7, "header"),
        (struct.pack("<Q", 9) + b"{}", "header"),
        (struct.pack("<Q", 2**63) + b"{}", "header"),
        (_file(b" {}"), "header"),
        (_file(b"[]"), "header"),
        (_file(b"{"), "header"),
        (_file(b'{"a\xff": 1}'), "header"),
        (_file(b'{"a":' * 100_000), "header"),
        (_file(b'{"__metadata__":{"a":"1","a":"2"}}'), "header"),
        (_file({"__metadata__": {"a": 1}}), "__metadata__"),
        (_file({"__metadata__": []}), "__metadata__"),
        (_file({"a": 1}), "a"),
        (_file({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), "a"),
        (_file(_one(more=1), bytes(8)), "a"),
        (_file(_one(dtype="F31"), bytes(8)), "a.dtype"),
        (_file(_one(dtype=[]), bytes(8)), "a.dtype"),
        (_file(_one(shape=[-2]), bytes(8)), "a.shape"),
        (_file(_one(shape=[2.0]), bytes(8)), "a.shape"),
        (_file(_one(shape=[True, 2]), bytes(8)), "a.shape"),
        (_file(_one(shape=2), bytes(8)), "a.shape"),
        (_file(_one(shape=[3]), bytes(8)), "a.data_offsets"),
        (_file(_one(data_offsets=[8, 0]), bytes(8)), "a.data_offsets"),
        (_file(_one(data_offsets=[0, 4, 8]), bytes(8)), "a.data_offsets"),
        (_file(_one(data_offsets=[1, 9]), bytes(9)), "a.data_offsets"),
        (_file(_one(), bytes(7)), "data_offsets"),
        (_file(_one(), bytes(9)), "data_offsets"),
        (_file({**_one(), "b": _one()["a"]}, bytes(16)), "b.data_offsets"),
        (_file(_one(shape=[10**30, 0], data_offsets=[0, 0]), b"x"), "data_offsets"),
    ],
)
def test_what_breaks_the_format_is_refused_with_its_field(data: bytes, field: str) -> None:
    with pytest.raises(SafetensorsError) as caught:
        unpack(data)
    assert caught.value.where == field


@pytest.mark.slow
@given(st.binary(max_size=200), st.integers(0, len(BY_HAND) - 1), st.integers(1, 255))
def test_no_bytes_break_the_reader(noise: bytes, at: int, flip: int) -> None:
    changed = bytearray(BY_HAND)
    changed[at] ^= flip
    for data in (noise, struct.pack("<Q", len(noise)) + noise, bytes(changed)):
        try:
            unpack(data)
        except SafetensorsError:
            continue


def _trained(step: int = 20) -> State:
    state = State.fresh(BASE)
    state.step = step
    state.params.flat += np.linspace(-0.1, 0.1, state.params.flat.size, dtype=np.float32)
    state.adam.m += 1
    return state


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
def test_a_policy_survives_export_and_import(tmp_path: Path, half: bool) -> None:
    store, state = WeightStore(tmp_path), _trained()
    store.save(state, BASE, "s20")
    data = weights.export(tmp_path, "s20", BASE, half)
    tensors, metadata = unpack(data)
    assert (metadata["base"], metadata["step"]) == (BASE.digest, "20")
    assert tensors["0.qkv"].shape == (128, 384)
    assert {tensor.dtype for tensor in tensors.values()} == {"F16" if half else "F32"}
    assert store.import_weights("back", data, BASE) == 20
    store.restore("back", BASE.digest)
    result = store.load(BASE)
    np.testing.assert_allclose(result.params.flat, state.params.flat, atol=2e-3 if half else 0)
    assert not result.adam.m.any(), "the optimizer begins anew"
    store.close()


def test_the_base_can_be_exported(tmp_path: Path) -> None:
    tensors, metadata = unpack(weights.export(tmp_path, "base", BASE))
    assert metadata["step"] == "0"
    result = np.frombuffer(tensors["embed"].data, "<f4").reshape(1024, 128)
    np.testing.assert_array_equal(result, BASE.params["embed"])


def _tensors() -> dict[str, Tensor]:
    params = BASE.params
    return {
        name: Tensor("F32", params[name].shape, params[name].tobytes()) for name in params.names()
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"2.out": None}, "2.out"),
        ({"lm_head": Tensor("F32", (1,), bytes(4))}, "lm_head"),
        ({"1.norm1": Tensor("F32", (64, 2), bytes(512))}, "1.norm1.shape"),
        ({"norm": Tensor("BF16", (128,), bytes(256))}, "norm.dtype"),
        ({"norm": Tensor("F32", (128,), b"\x00\x00\xc0\x7f" * 128)}, "norm"),
    ],
)
def test_weights_that_do_not_fit_are_refused_with_their_field(
    tmp_path: Path, change: dict[str, Tensor | None], field: str
) -> None:
    store = WeightStore(tmp_path)
    changed = {**_tensors(), **change}
    data = pack({name: tensor for name, tensor in changed.items() if tensor is not None}, {})
    with pytest.raises(SafetensorsError) as caught:
        store.import_weights("new", data, BASE)
    assert caught.value.where == field
    assert not store.path("new").exists()
    store.close()


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"base": "0" * 64}, "__metadata__.base"),
        ({"step": "-1"}, "__metadata__.step"),
        ({"step": "٣"}, "__metadata__.step"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(
    tmp_path: Path, metadata: dict[str, str], field: str
) -> None:
    store = WeightStore(tmp_path)
    with pytest.raises(SafetensorsError) as caught:
        store.import_weights("new", pack(_tensors(), metadata), BASE)
    assert caught.value.where == field
    assert store.import_weights("new", pack(_tensors(), {}), BASE) == 0
    with pytest.raises(WeightsError, match="not a valid"):
        store.import_weights("latest", pack(_tensors(), {}), BASE)
    store.close()
