"""Listening sockets: where to bind, and what to say when that is not possible."""

import errno
import ipaddress
import socket

from core.errors import AjetError


class BindError(AjetError):
    """A process cannot listen where it was told to."""

    exit_code = 2


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int, next_free: bool = False, tries: int = 50) -> socket.socket:
    """A bound TCP socket, not yet listening.

    Args:
        host: Address or name to bind.
        port: 0 takes any free one.
        next_free: When `port` is taken, try the ones above it.
        tries: How many ports to try then.

    Raises:
        BindError: the port is taken (its holder is named where it can be known), or the host is not
            one of this machine's.
    """
    for offset in range(tries if next_free and port else 1):
        try:
            return _bound(host, port + offset)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise BindError(
                    f"cannot listen on {host}: {error.strerror or error}",
                    where=f"{host}:{port}",
                    todo="Give an address of this machine, 127.0.0.1 for instance",
                ) from error
            taken = error
    if taken.errno == errno.EACCES:
        raise BindError(
            f"port {port} may not be used by this account", f"{host}:{port}", "Give one above 1023"
        )
    by = holder(port)
    raise BindError(
        f"port {port} is in use{f' by {by}' if by else ''}",
        where=f"{host}:{port}",
        todo="Stop it, or give another port (0 takes any free one)",
    )


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host.strip("[]"), port))
        # Two processes may bind with SO_REUSEADDR before either listens: listening decides.
        sock.listen(2048)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def holder(port: int) -> str:
    """Name and pid of the process that listens on `port`; empty when it cannot be known."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and local and local.port == port:
                if connection.pid is None:
                    return ""
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""
    return ""
