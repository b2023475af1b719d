"""Listening sockets: binding, and errors that name the cause."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable

from ajet_swarm.common.errors import UsageError


class BindError(UsageError):
    """A process cannot listen on its address."""


TAKEN = "the port is taken"
"""Beginning of the error for a taken port."""


class PortInUse(BindError):
    """Another process listens on the port."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(
    host: str, port: int, next_free: bool = False, tries: int = 50, setting: str = "--port"
) -> socket.socket:
    """Return a bound TCP socket that listens.

    Args:
        host: Address or name to bind.
        port: 0 takes any free one.
        next_free: Whether to try the next higher ports if `port` is taken.
        tries: Number of ports to try.
        setting: Name of the setting of the port, for the error.

    Raises:
        PortInUse: The port is taken; names its holder if known.
        BindError: The host is not an address of this machine.
    """
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BindError(f"not an address: {error}", host, "Give a host of this machine") from error
    family, address = addresses[0][0], str(addresses[0][4][0])
    for offset in range(tries if next_free and port else 1):
        try:
            return _bound(family, address, port + offset)
        except OSError as error:
            taken = error
            if error.errno != errno.EADDRINUSE:
                break
    where = f"{host}:{port}"
    if taken.errno != errno.EADDRINUSE:
        raise BindError(
            f"cannot listen: {taken.strerror or taken}",
            where,
            "Give an address of this machine and a port above 1023",
        ) from taken
    by = port_holder(port)
    raise PortInUse(
        f"{TAKEN}{f' by {by}' if by else ''}",
        where,
        f"Stop that process, or set {setting} to another port (0 takes any free one)",
    ) from taken


def _bound(family: int, address: str, port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets of this protocol. Without it, the second part of a
    # response waits for the delayed acknowledgement of the first one: 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        # Two processes may bind with SO_REUSEADDR before either listens: listening decides.
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def is_free(host: str, port: int) -> bool:
    """Return whether a process could listen on this address now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((host, port))
            return True
    return False


def public_url(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL of `host:port` for clients on this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)
    if ":" in reachable and not reachable.startswith("["):
        reachable = f"[{reachable}]"
    return f"{scheme}://{reachable}:{port}"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if it is installed; None for asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def port_holder(port: int) -> str:
    """Return name and pid of the process that listens on `port`; empty if unknown."""
    import psutil

    try:
        for connection in psutil.net_connections("inet"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and local and local.port == port:
                if connection.pid is None:
                    return ""
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        return ""
    return ""


def raise_file_limit(limit: int = 65_536) -> None:
    """Raise this process's limit of open files, of which each connection needs one.

    Args:
        limit: The limit to set, if the system allows it.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(
            OSError, ValueError
        ):  # macOS refuses values that it considers too high
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
