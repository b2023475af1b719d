"""Listening sockets: which address and port, and who has a port that is taken."""

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
