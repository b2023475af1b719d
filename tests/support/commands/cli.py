"""The command line in the process of a test: one call runs a command and checks its exit code."""

import asyncio
import json
from typing import Any

import pytest
from _pytest.capture import CaptureResult

from console.cli import main
from tests.support.checks import missing as missing


class Cli:
    """Runs commands. Each method but the call returns what was printed since the last one.

    Args:
        captured: Where the output is.
        before: Words in front of those of each call.
    """

    def __init__(self, captured: pytest.CaptureFixture[str], *before: object) -> None:
        self._captured = captured
        self._before = before

    def __call__(self, *argv: object, code: int = 0) -> None:
        """Run a command; fails unless it ends with `code`."""
        words = [str(word) for word in (*self._before, *argv)]
        assert main(words) == code, self._captured.readouterr()

    def run(self, *argv: object, code: int = 0) -> CaptureResult[str]:
        """Run a command; return both streams."""
        self(*argv, code=code)
        return self._captured.readouterr()

    def out(self, *argv: object, code: int = 0) -> str:
        """Run a command; return its standard output."""
        return self.run(*argv, code=code).out

    def err(self, *argv: object, code: int = 0) -> str:
        """Run a command; return its standard error."""
        return self.run(*argv, code=code).err

    def failed(self, *argv: object) -> str:
        """Run a command that must end with 1; return its standard error."""
        return self.err(*argv, code=1)

    def refused(self, *argv: object) -> str:
        """Run a command that must end with 2, as wrong use does; return its standard error."""
        return self.err(*argv, code=2)

    def json(self, *argv: object, code: int = 0) -> Any:
        """Run a command with `--json`; return the value that it prints."""
        return json.loads(self.out(*argv, "--json", code=code))


class AsyncCli:
    """The same from a test whose loop serves what the command asks: it runs in a thread."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli

    async def __call__(self, *argv: object, code: int = 0) -> None:
        await asyncio.to_thread(self._cli, *argv, code=code)

    async def run(self, *argv: object, code: int = 0) -> CaptureResult[str]:
        return await asyncio.to_thread(self._cli.run, *argv, code=code)

    async def out(self, *argv: object, code: int = 0) -> str:
        return (await self.run(*argv, code=code)).out

    async def err(self, *argv: object, code: int = 0) -> str:
        return (await self.run(*argv, code=code)).err

    async def failed(self, *argv: object) -> str:
        return await self.err(*argv, code=1)

    async def refused(self, *argv: object) -> str:
        return await self.err(*argv, code=2)

    async def json(self, *argv: object, code: int = 0) -> Any:
        return json.loads(await self.out(*argv, "--json", code=code))
