"""Messages between the proxy and the hooks' process, over a socket pair.

A frame is a 4-byte big-endian length and a JSON document. The child's standard streams carry no
messages, so nothing that a hook prints can disturb the protocol.

The call that has the hooks' thread is recorded in memory that outlives their process: a process
that ends at once, through a bad pointer or lack of memory, cannot report anything.
"""

import asyncio
import contextlib
import mmap
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

HEADER = 4
MAX_FRAME = 64 << 20
"""Maximum size of a frame that either side accepts, in bytes."""

_OWNER = struct.Struct("=qd")


class HookFault(msgspec.Struct, frozen=True):
    """A fault in the hooks' process, and its place in the operator's code."""

    cause: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    late: bool = False
    """The call exceeded its time limit."""


class HookAnswer(msgspec.Struct, frozen=True):
    """One answer, reduced to the fields that hooks receive."""

    episode_uuid: str
    message: dict[str, Any]
    completion: dict[str, Any]


class ScoreCall(msgspec.Struct, frozen=True, tag="score"):
    """To the child: run `on_compute_relative_reward`."""

    id: int
    query: str
    answers: list[HookAnswer]


class RequestCall(msgspec.Struct, frozen=True, tag="request"):
    """To the child: run `on_user_submit_new_requests`."""

    id: int
    request_id: str
    task_id: str
    query: str
    metadata: dict[str, Any]


class CancelCall(msgspec.Struct, frozen=True, tag="cancel"):
    """To the child: cancel the call `id`."""

    id: int


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """From the child: the hooks are imported and ready."""

    id: int
    """0, the id of the load."""
    submit: bool
    """Whether the folder has an `on_user_submit_new_requests`."""


class Note(msgspec.Struct, frozen=True):
    """The values and texts that a hook added to one answer, besides its reward."""

    values: dict[str, float]
    texts: dict[str, str]


class Scored(msgspec.Struct, frozen=True, tag="scored"):
    """From the child: one reward and one note for each answer, in order."""

    id: int
    rewards: list[float]
    notes: list[Note]


class Noted(msgspec.Struct, frozen=True, tag="noted"):
    """From the child: the submit hook has run."""

    id: int
    metadata: dict[str, Any]
    repeat: int | None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From the child: the call (0 for the load) failed or returned an unusable value."""

    id: int
    fault: HookFault
    last: bool = False
    """The child ends now and accepts no more calls."""


class Stack(msgspec.Struct, frozen=True, tag="stack"):
    """From the child's reading thread, in response to a cancel: the stack of the hooks' thread."""

    id: int
    fault: HookFault


ToChild = ScoreCall | RequestCall | CancelCall
FromChild = Loaded | Scored | Noted | Failed | Stack

_ENCODER = msgspec.json.Encoder(enc_hook=str)
_TO_CHILD: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_FROM_CHILD: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


class FrameError(Exception):
    """The other side sent an invalid frame, or a message cannot be sent as one."""


def pack(message: ToChild | FromChild) -> bytes:
    """Return one frame; values that JSON cannot represent become their text.

    Raises:
        FrameError: the message cannot be encoded or is too long.
    """
    try:
        body = _ENCODER.encode(message)
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"cannot be written as JSON: {error}") from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"{len(body)} bytes, more than {MAX_FRAME}")
    return len(body).to_bytes(HEADER, "big") + body


def decode_for_child(body: bytes) -> ToChild:
    """Decode a message to the child."""
    return _TO_CHILD.decode(body)


async def read_from_child(reader: asyncio.StreamReader) -> FromChild:
    """Return the next message from the child.

    Raises:
        EOFError: the child has ended (`IncompleteReadError` is one).
        FrameError: the bytes are not a valid message.
    """
    size = int.from_bytes(await reader.readexactly(HEADER), "big")
    if size > MAX_FRAME:
        raise FrameError(f"a frame of {size} bytes")
    try:
        return _FROM_CHILD.decode(await reader.readexactly(size))
    except msgspec.MsgspecError as error:
        raise FrameError(str(error)) from error


def receive(channel: socket.socket) -> bytes | None:
    """Wait for the next frame and return its body; None when the other side has ended."""
    head = _exactly(channel, HEADER)
    return None if head is None else _exactly(channel, int.from_bytes(head, "big"))


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            chunk = channel.recv(min(size - len(data), 1 << 20))
        except OSError:
            return None
        if not chunk:
            return None
        data += chunk
    return bytes(data)


@contextlib.contextmanager
def shared_page() -> Iterator[int]:
    """Yield the descriptor of a new shared page, to pass to a process that starts meanwhile."""
    if sys.platform == "linux":
        page = os.memfd_create("hooks")
    else:
        with tempfile.TemporaryFile() as file:
            page = os.dup(file.fileno())
    try:
        os.ftruncate(page, mmap.PAGESIZE)
        yield page
    finally:
        os.close(page)


class ThreadOwner:
    """One process's mapping of the shared page, until `close`."""

    def __init__(self, page: int) -> None:
        self._page = mmap.mmap(page, mmap.PAGESIZE)

    def put(self, call: int, since: float = 0.0) -> None:
        """Record the call that has the thread, and since when (monotonic); 0 for none."""
        _OWNER.pack_into(self._page, 0, call, since)

    def get(self) -> tuple[int, float]:
        """Return the call that has the thread, 0 for none, and since when (monotonic)."""
        call, since = _OWNER.unpack_from(self._page, 0)
        return call, since

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()
