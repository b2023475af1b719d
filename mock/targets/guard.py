"""Guard that kills a program's process group when the mock user itself is killed.

Beside each program a shell waits on a pipe that only the mock user holds. After a word on the pipe
it exits; when the pipe closes without a word, the mock user is gone and the shell kills the
program's process group. This works wherever there is a shell, on Linux and macOS.
"""

import asyncio
import contextlib

_WAITS = 'read -r word || kill -KILL "-$1"'
_PATIENCE = 2.0


class ProcessGroupGuard:
    """The shell that guards one process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, group: int) -> "ProcessGroupGuard | None":
        """Guard a process group; return None where there is no shell."""
        with contextlib.suppress(OSError):
            return cls(
                await asyncio.create_subprocess_exec(
                    "/bin/sh",
                    "-c",
                    _WAITS,
                    "sh",
                    str(group),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            )
        return None

    async def release(self) -> None:
        """Stop the guard after the group has ended."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            pipe.write(b"over\n")
            await pipe.drain()
        pipe.close()
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
