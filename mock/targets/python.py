"""A Python function as a target, in a process of its own: it can hang, crash or print at will."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from mock.tally import Tally
from mock.targets.base import OUTPUT_CAP, Local, Setting
from mock.targets.openai import Answer, Question, Unreachable
from mock.targets.process import ended, environment, kill, start
from mock.targets.spec import PythonSpec
from mock.targets.templates import fill

_PACKAGES = str(Path(__file__).resolve().parents[2])


class _Crashed(Exception):
    """The process ended without an answer; the text says how."""


class Worker:
    """One process that has the function loaded."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = bytearray()

    @classmethod
    async def begin(cls, spec: PythonSpec, environ: dict[str, str]) -> "Worker":
        """Start one; its first line tells whether the function was found."""
        paths = [str(spec.folder), _PACKAGES, os.environ.get("PYTHONPATH", "")]
        env = environment({**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))})
        argv = [sys.executable, "-u", "-m", "mock.targets.python_worker", spec.function]
        return cls(await start(argv, env=env, folder=spec.folder, piped=True))

    async def first(self) -> dict[str, Any]:
        """`ready`, or why it is not."""
        return await self._line()

    async def ask(self, told: dict[str, Any]) -> dict[str, Any]:
        """One question and what came of it."""
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            pipe.write(msgspec.json.encode(told) + b"\n")
            await pipe.drain()
        return await self._line()

    async def end(self) -> None:
        """Kill it, whatever it does."""
        await kill(self._process)

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = bytearray()
        async with asyncio.TaskGroup() as group:
            errors = group.create_task(self._listen(self._process.stderr))
            while not line.endswith(b"\n"):
                data = await self._process.stdout.read(1 << 16)
                line += data
                if not data or len(line) > OUTPUT_CAP:
                    break
            if not line.endswith(b"\n"):
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await ended(self._process)
                        await asyncio.shield(errors)
            errors.cancel()
        try:
            found = msgspec.json.decode(bytes(line))
        except msgspec.MsgspecError:
            raise _Crashed(self._fate(len(line))) from None
        return dict(found)

    async def _listen(self, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(1 << 14):
            self._errors += data
            del self._errors[: -(1 << 14)]

    def _fate(self, length: int) -> str:
        if length > OUTPUT_CAP:
            return f"it answered more than {OUTPUT_CAP >> 20} MB"
        code = self._process.returncode
        said = self._errors.decode(errors="replace").strip().split("\n")[-1]
        fate = "its process ended" if code is None or code >= 0 else f"killed by signal {-code}"
        return f"no answer: {fate}" + (f": {one_line(said, 200)}" if said else "")


class Function(Local):
    """`module:function`, called as `f(query)` or `f(query, context)`; may be async."""

    def __init__(self, spec: PythonSpec, setting: Setting) -> None:
        super().__init__(spec, setting)
        self._spec = spec
        self._idle: list[Worker] = []

    async def close(self) -> None:
        """End the processes that wait for a question."""
        while self._idle:
            await self._idle.pop().end()

    async def ask(
        self,
        question: Question,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: Tally,
    ) -> Answer | None:
        """See `Target.ask`; a function that failed is not called again for the same question."""
        spec, began = self._spec, time.monotonic()
        try:
            async with asyncio.timeout(spec.timeout):
                found = await self._call(question)
        except TimeoutError:
            return self.failed(f"no answer within {spec.timeout:g} s: killed", began)
        except _Crashed as error:
            return self.failed(str(error), began)
        if "broken" in found:
            raise Unreachable(self.hide(str(found["broken"])), str(spec.path), "See its `function`")
        if error_text := found.get("error"):
            return self.failed(str(error_text), began)
        text = str(found.get("answer", "")).strip()
        if not text:
            return self.failed("it returned an empty answer", began)
        return Answer(text=text, seconds=time.monotonic() - began)

    async def _call(self, question: Question) -> dict[str, Any]:
        values = self.values(question)
        own = {name: self._env[name] for name in self._spec.env}
        given = {name: fill(text, values) for name, text in self._spec.set.items()}
        environ = {**own, **_addresses(values), **given}
        told = {name: value for name, value in values.items() if not name.startswith("env:")}
        worker = self._idle.pop() if self._idle else None
        fresh = worker is None
        if worker is None:
            worker = await Worker.begin(self._spec, environ)
        well = False
        try:
            if fresh:
                found = await worker.first()
                if "broken" in found:
                    return found
            found = await worker.ask({**told, "turn": question.turn, "environ": environ})
            well = True
            return found
        finally:
            if well and not self._spec.fresh:
                self._idle.append(worker)
            else:
                await worker.end()


def _addresses(values: dict[str, Any]) -> dict[str, str]:
    """What OpenAI and Anthropic clients made without arguments look at."""
    return {
        "OPENAI_BASE_URL": values["base_url"],
        "OPENAI_API_KEY": values["api_key"],
        "ANTHROPIC_BASE_URL": values["root_url"],
        "ANTHROPIC_AUTH_TOKEN": values["api_key"],
    }
