"""Listening sockets: which address and port, and who has a port that is taken."""

import asyncio
import os
import socket

import pytest

from core.runtime.sockets import BindError, bind, is_loopback


def test_a_taken_port_names_its_holder() -> None:
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(BindError, match=f"pid {os.getpid()}"):
            bind("127.0.0.1", port)
        with pytest.raises(BindError, match=r"set `proxy\.port` to another port"):
            bind("127.0.0.1", port, setting="`proxy.port`")
        with bind("127.0.0.1", port, next_free=True) as other:
            assert other.getsockname()[1] > port


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(BindError, match="cannot listen"):
        bind("203.0.113.7", 0)
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert socket.AF_INET


async def test_accepted_connections_send_without_delay() -> None:
    """With Nagle's algorithm, the second part of a response waits 40 ms."""
    delays: list[int] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        delays.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with bind("127.0.0.1", 0) as sock:
        async with await asyncio.start_server(accept, sock=sock):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            assert await reader.read() == b""
            writer.close()
    assert delays == [1]
