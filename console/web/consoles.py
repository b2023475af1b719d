"""The consoles of all browsers: a process each, its memory, and its end."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import psutil
from msgspec.structs import replace
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import one_line
from console.web.notices import PROXY_DOWN, START_FAILED, Notice, full, full_of_link
from core.roles import Identity
from core.settings import RatingSettings
from core.whole_file import replace_file

log = logging.getLogger(__name__)

FOLDER_PREFIX = "web-"
_END_SECONDS = 5.0
"""Time that a console has to end by itself."""
_MOVED_SECONDS = 5.0
_PER_LINK = 3
"""Most consoles of one link."""
_TAIL_BYTES = 1 << 16
"""Bytes of the errors of a console that are in memory."""
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONDONTWRITEBYTECODE")
"""Variables that a console gets from this process; others may be secrets."""
_FIRST_PAINT = 1_000
"""Bytes: what is smaller sets up the terminal."""


class Refused(AjetError):
    """A browser gets no console.

    Attributes:
        notice: What the browser shows; the error itself is for the operator.
    """

    def __init__(self, notice: Notice, why: object = "") -> None:
        super().__init__(str(why) or notice.title)
        self.notice = notice


@dataclass(frozen=True, slots=True)
class Attachment:
    """What the consoles attach to."""

    url: str
    cert: str = ""
    theme: str = "dark"
    rating: RatingSettings = field(default_factory=RatingSettings)


Send = Callable[[bytes], Awaitable[None]]


class _End:
    """The end of what a process writes; read instead of a stream of which all is kept."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._tail = b""

    async def read(self, _most: int = 0) -> bytes:
        """Read to the end; return nothing."""
        while data := await self._stream.read(4096):
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
        return b""

    @property
    def last_line(self) -> str:
        """The last line without keys and control characters."""
        lines = self._tail.decode("utf-8", "replace").split("\n")
        return one_line(redact(next((line for line in reversed(lines) if line.strip()), "")))


class BrowserConsole(AppService):
    """One console process, by the packets of textual-serve.

    Args:
        identity: Whose link it is.
        attachment: The proxy that it attaches to.
        send: Sends what it paints; never fails.
    """

    def __init__(self, identity: Identity, attachment: Attachment, send: Send) -> None:
        super().__init__(
            "",
            write_bytes=self._painted,
            write_str=self._nothing,
            close=self._nothing,
            download_manager=DownloadManager(),
        )
        self.identity = identity
        self.since = time.time()
        self.painted = asyncio.Event()
        """Set after the first paint."""
        self.ended = asyncio.Event()
        """Set when the console has ended by itself, or paints no more."""
        self.attachment = attachment
        self._arguments: Sequence[str] = ()
        self._folder: Path | None = None
        self._send = send

    @property
    def pid(self) -> int:
        """Process id; 0 before the start."""
        return self._process.pid if self._process is not None else 0

    def rss(self) -> int:
        """Return the resident memory of the process in bytes; 0 when it has ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.pid else 0
        except psutil.Error:
            return 0

    async def on_meta(self, data: bytes) -> None:
        """Follow the exit of the console alone: it opens no address and delivers no file."""
        if b'"exit"' in data:
            self.ended.set()

    async def on_packed(self, payload: bytes) -> None:
        """Ignore parts of files."""

    async def run(self) -> None:
        """Pass on what the process paints until it ends."""
        try:
            await super().run()
        finally:
            self.ended.set()

    async def launch(self, parent: Path, token: str, size: tuple[int, int]) -> None:
        """Start the process.

        Args:
            parent: Folder for its own folder, which is removed at its end.
            token: The token that it attaches with.
            size: Columns and rows.

        Raises:
            OSError: it cannot be started.
        """
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, None, FOLDER_PREFIX, parent))
        await asyncio.to_thread(replace_file, self._folder / "link", token.encode(), 0o600)
        # The process reads no file outside of its folder, so not the guidelines either.
        rating = replace(self.attachment.rating, guidelines="")
        text = msgspec.json.encode({"rating": rating})
        await asyncio.to_thread(replace_file, self._folder / "config.yaml", text, 0o600)
        self._arguments = _command(self.attachment, self._folder, self.identity)
        await self.start(*size)

    @property
    def failure(self) -> str:
        """The last line of its errors if it failed; empty while it runs."""
        process = self._process
        if process is None or process.returncode in (None, 0, -signal.SIGKILL, -signal.SIGHUP):
            return ""  # it ends by SIGHUP when its input ends
        return cast(_End, process.stderr).last_line or f"exit code {process.returncode}"

    async def end(self) -> None:
        """End the process: it is asked to, and killed if it does not."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.stop()
        except Exception as error:  # noqa: BLE001 - its process and its token go whatever happens
            log.warning("console %s is killed: %s", self.pid, type(error).__name__)
        finally:
            if self._process is not None:
                await _wait_or_kill(self._process)
            if self._folder is not None:
                await asyncio.to_thread(shutil.rmtree, self._folder, True)

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        """Return the variables of the console: those of textual-serve and few others."""
        built: dict[str, str] = super()._build_environment(width, height)
        return {
            name: value
            for name, value in built.items()
            if name in _PASSED or os.environ.get(name) != value or name in ("COLUMNS", "ROWS")
        }

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Start the console without a shell; nothing secret is on its command line."""
        self._process = await asyncio.create_subprocess_exec(
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            cwd=self._folder,
        )
        self._stdin = self._process.stdin
        assert self._process.stderr is not None
        self._process.stderr = cast(Any, _End(self._process.stderr))
        return self._process

    async def _painted(self, data: bytes) -> None:
        await self._send(data)
        if len(data) > _FIRST_PAINT:
            self.painted.set()

    async def _nothing(self, _text: str = "") -> None:
        """Send nothing: the console opens no address and delivers no file."""


class BrowserConsoles:
    """All consoles of the server.

    Args:
        folder: Folder for the consoles' own folders.
        attachment: Returns the proxy as it is now.
        most: Most consoles at once.
    """

    def __init__(self, folder: Path, attachment: Callable[[], Attachment], most: int) -> None:
        self._folder = folder
        self._attachment = attachment
        self._most = most
        self._open: set[BrowserConsole] = set()
        """Those that start, are open or end."""

    @property
    def count(self) -> int:
        """Consoles that start, are open or end."""
        return len(self._open)

    @property
    def most(self) -> int:
        """Most consoles at once."""
        return self._most

    async def check(self, identity: Identity) -> Attachment:
        """Return what a further console attaches to.

        Raises:
            Refused: as many as allowed are open, or no proxy runs.
        """
        self._check_count(identity)
        try:
            return await asyncio.to_thread(self._attachment)
        except AjetError as error:
            raise Refused(PROXY_DOWN, error) from error

    def _check_count(self, identity: Identity) -> None:
        if self.count >= self._most:
            raise Refused(full(self._most))
        if sum(console.identity.name == identity.name for console in self._open) >= _PER_LINK:
            raise Refused(full_of_link(_PER_LINK))

    async def moved(self, console: BrowserConsole) -> None:
        """Wait until the proxy of a console runs at another address."""
        was = console.attachment
        while True:
            await asyncio.sleep(_MOVED_SECONDS)
            with contextlib.suppress(AjetError):  # it does not run: the console shows that
                now = await asyncio.to_thread(self._attachment)
                if (now.url, now.cert) != (was.url, was.cert):
                    return

    def rows(self) -> Sequence[Mapping[str, object]]:
        """Return name, role, pid, memory and age of each console."""
        return [
            {
                "name": console.identity.name,
                "role": console.identity.role,
                "pid": console.pid,
                "rss_mb": round(console.rss() / 1e6, 1),
                "since": console.since,
            }
            for console in sorted(self._open, key=lambda console: console.since)
        ]

    async def open(
        self, identity: Identity, token: str, size: tuple[int, int], send: Send
    ) -> BrowserConsole:
        """Start a console.

        Args:
            identity: Whose token it is.
            token: The token that the console attaches with.
            size: Columns and rows.
            send: Sends what the console paints; never fails.

        Raises:
            Refused: as many as allowed are open, no proxy runs, or it does not start.
        """
        attachment = await self.check(identity)
        self._check_count(identity)  # another browser may have been faster
        console = BrowserConsole(identity, attachment, send)
        self._open.add(console)
        try:
            await console.launch(self._folder, token, size)
        except BaseException as error:
            await self.end(console)
            if isinstance(error, OSError):
                raise Refused(START_FAILED, error.strerror or error) from error
            raise
        return console

    async def end(self, console: BrowserConsole) -> None:
        """End one console; it counts until its process has ended."""
        try:
            await console.end()
        finally:
            self._open.discard(console)


def remove_leftovers(folder: Path) -> None:
    """Remove the folders of consoles whose server was killed. Blocks on the disk."""
    for path in folder.glob(f"{FOLDER_PREFIX}*/"):
        shutil.rmtree(path, ignore_errors=True)


async def _wait_or_kill(process: Process) -> None:
    """Close the input of a process; kill it unless it ends within a second."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 1.0)
    if process.returncode is None:
        process.kill()
    with contextlib.suppress(Exception):  # read what is left: an unread pipe is never closed
        async with asyncio.timeout(1.0):
            output = _End(cast(asyncio.StreamReader, process.stdout))
            await asyncio.gather(output.read(), cast(_End, process.stderr).read())
    await process.wait()


def _command(attachment: Attachment, folder: Path, identity: Identity) -> Sequence[str]:
    return [
        sys.executable,
        "-P",
        "-m",
        "console.web.child",
        f"--folder={folder}",
        f"--attach={attachment.url}",
        f"--theme={attachment.theme}",
        f"--cert={attachment.cert}",
        *(() if identity.permits("rater") else ("--read-only",)),
    ]
