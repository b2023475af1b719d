"""A relay between console and proxy that counts the bytes of the proxy's answers."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Relay:
    """Forwards connections to one port of loopback."""

    def __init__(self, port: int) -> None:
        self.received = 0
        """Bytes from the proxy."""
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, target, counts in ((near, far, False), (far, near, True)):
                    threading.Thread(
                        target=self._pump, args=(source, target, counts), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.received += len(data) if counts else 0
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def relayed(url: str) -> Iterator[Relay]:
    """Open a relay to the proxy at `url`."""
    relay = Relay(int(url.rpartition(":")[2]))
    try:
        yield relay
    finally:
        relay.close()
