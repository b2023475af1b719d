"""Processes forked from one that has imported the program: a start takes 20 ms of CPU, not 600.

Each is a process of its own, in a session of its own, and runs `python -m console ARGS` or another
module. Its modules are those that `_PRELOADED` imports and what it imports itself. Tests of the
start itself (`tests/e2e/test_real_starts.py`, the console on a pseudo terminal) use a new
interpreter.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from engine.training import threads

ROOT = Path(__file__).resolve().parents[2]
_PRELOADED = (
    "console.cli.registry",
    "console.cli.tree",
    "engine.main",
    "proxy.main",
    "proxy.http.protocol",
    "mock.control",
    "uvicorn.loops.auto",
    "uvicorn.lifespan.on",
)
_ANSWER_LIMIT = 60.0
"""Seconds for the forking process to answer."""
_LOST = -255
"""Return code of a process whose exit status the forking process did not read."""


class ForkedProcess:
    """A process of `start`, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], pid: int) -> None:
        self.args = list(args)
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, minus the signal that ended it, or None while it runs."""
        if self.returncode is None:
            self.returncode = _server().request({"poll": self.pid})["returncode"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: It runs after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
        while self.poll() is None:  # it has ended; its exit code follows at once
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(0.002)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    output: IO[Any],
    errors: IO[Any] | None = None,
    cwd: str | os.PathLike[str] = ROOT,
    module: str = "console",
) -> ForkedProcess:
    """Start `python -m MODULE ARGS` in a session of its own, without input.

    Args:
        args: Arguments of the module.
        env: Its whole environment.
        output: Open file of its standard output.
        errors: Open file of its standard error; None for that of its output.
        cwd: Its working directory.
        module: The module.
    """
    request = {"module": module, "args": list(args), "env": dict(env), "cwd": os.fspath(cwd)}
    descriptors = [output.fileno(), (errors or output).fileno()]
    return ForkedProcess(args, _server().request(request, descriptors)["pid"])


def run(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout: float,
    cwd: str | os.PathLike[str] = ROOT,
    module: str = "console",
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE ARGS` to its end; return its exit code and output.

    Raises:
        subprocess.TimeoutExpired: It ran after `timeout` seconds; it is killed.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(args, env=env, output=output, errors=errors, cwd=cwd, module=module)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        output.seek(0)
        errors.seek(0)
        texts = output.read().decode(), errors.read().decode()
    return subprocess.CompletedProcess(list(args), code, *texts)


class _Server:
    """Client of the forking process, which ends with this one."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_LIMIT)
        self._numbers = itertools.count()
        names = [name for name in os.environ if name.startswith(("AJET", "COV_", "PYTEST"))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in names},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self._close)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait(_ANSWER_LIMIT)

    def request(
        self, request: Mapping[str, Any], descriptors: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Return the answer to a request; the descriptors go with it."""
        number = next(self._numbers)
        data = json.dumps({**request, "number": number}).encode()
        socket.send_fds(self._socket, [data], list(descriptors))
        while True:  # an answer that came too late is still there
            answer: dict[str, Any] = json.loads(self._socket.recv(1 << 20))
            if answer.pop("number") == number:
                return answer


@functools.cache
def _server() -> _Server:
    return _Server()


class _Forked(BaseException):
    """Leaves the loop of requests in a new process."""

    def __init__(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        self.request = request
        self.descriptors = descriptors


def _serve(connection: socket.socket) -> None:
    """Answer requests until the connection closes.

    Raises:
        _Forked: This is the new process.
    """
    codes: dict[int, int] = {}

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])

    signal.signal(signal.SIGCHLD, reap)
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        if not data:
            return
        request = json.loads(data)
        if "poll" in request:
            answer: dict[str, Any] = {"returncode": _code(request["poll"], codes)}
        else:
            pid = os.fork()
            if not pid:
                connection.close()
                raise _Forked(request, descriptors)
            answer = {"pid": pid}
            for descriptor in descriptors:
                os.close(descriptor)
        answer["number"] = request["number"]
        connection.send(json.dumps(answer).encode())


def _code(pid: int, codes: Mapping[int, int]) -> int | None:
    if pid in codes:
        return codes[pid]
    return None if Path(f"/proc/{pid}").exists() else codes.get(pid, _LOST)


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Run the module of a request in this new process."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, place)
        os.close(descriptor)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - until the process ends
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    random.seed()
    sys.argv = [request["module"], *request["args"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    threads.prepare()  # before anything imports numpy, as in the engine's own process
    for name in _PRELOADED:
        importlib.import_module(name)
    schema_once = importlib.import_module("tests.support.engine.schema_once")
    schema_once.generate_once()
    schema_once.prepare()
    gc.collect()
    gc.freeze()
    try:
        _serve(connection)
        return
    except _Forked as forked:
        request, descriptors = forked.request, forked.descriptors
    _become(request, descriptors)


if __name__ == "__main__":
    _main()
