"""A reader of TensorBoard event files that shares no code with the writer.

Format: TFRecord (length, its masked CRC-32C, data, its masked CRC-32C) of `Event` messages in
Protocol Buffers' wire format.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Scalar(NamedTuple):
    """One figure."""

    tag: str
    step: int
    at: float
    value: float


def scalars(folder: Path) -> list[Scalar]:
    """The figures of all event files in a folder, in their order."""
    found = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        for record in _records(file.read_bytes()):
            found += list(_event(record))
    return found


def _records(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        (check,) = struct.unpack_from("<I", data, at + 8)
        assert check == _masked(data[at : at + 8])
        record = data[at + 12 : at + 12 + size]
        (check,) = struct.unpack_from("<I", data, at + 12 + size)
        assert check == _masked(record)
        yield record
        at += 16 + size


def _event(record: bytes) -> Iterator[Scalar]:
    fields = list(_fields(record))
    at = next((struct.unpack("<d", value)[0] for number, value in fields if number == 1), 0.0)
    step = next((int.from_bytes(value, "little") for number, value in fields if number == 2), 0)
    for summary in (value for number, value in fields if number == 5):
        for field in (value for number, value in _fields(summary) if number == 1):
            values = dict(_fields(field))
            if 2 in values:
                yield Scalar(values[1].decode(), step, at, struct.unpack("<f", values[2])[0])


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field; a varint as 8 bytes, low byte first."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value.to_bytes(10, "little")
            case 1:
                yield key >> 3, data[at : at + 8]
                at += 8
            case 2:
                size, at = _varint(data, at)
                yield key >> 3, data[at : at + size]
                at += size
            case 5:
                yield key >> 3, data[at : at + 4]
                at += 4
            case other:
                raise AssertionError(f"wire type {other}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
