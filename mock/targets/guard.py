"""What ends a program when the mock user is killed and so cannot do it.

Beside each program a shell waits on a pipe that only the mock user holds. Told that all is over it
ends; when the pipe closes without that word, whoever held it is gone, and it kills the program's
process group. That works wherever there is a shell, on Linux and macOS alike.
"""

import asyncio
import contextlib

_WAITS = 'read -r word || kill -KILL "-$1"'
_PATIENCE = 2.0


class Guard:
    """The shell beside one process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def over(cls, group: int) -> "Guard | None":
        """Guard a process group; None where there is no shell."""
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
        """The group is gone: nothing is left to kill."""
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
