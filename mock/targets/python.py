"""A Python function as a target, in its own process: it may hang, crash or print."""

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
from mock.tally import RunCounters
from mock.targets.base import OUTPUT_CAP, ModelEndpoint, TargetBase
from mock.targets.openai import Answer, Question, Unreachable
from mock.targets.process import environment, kill, start, wait_for_exit
from mock.targets.spec import PythonSpec
from mock.targets.templates import fill

_PACKAGES = str(Path(__file__).resolve().parents[2])


class _Crashed(Exception):
    """The process ended without an answer; the text gives the reason."""


class FunctionWorker:
    """One process with the function loaded."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = bytearray()

    @classmethod
    async def begin(cls, spec: PythonSpec, environ: dict[str, str]) -> "FunctionWorker":
        """Start a process; its first line reports whether the function was found."""
        paths = [str(spec.works_in), _PACKAGES, os.environ.get("PYTHONPATH", "")]
        env = environment({**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))})
        argv = [sys.executable, "-u", "-m", "mock.python_worker", spec.function]
        return cls(await start(argv, env=env, folder=spec.works_in, piped=True))

    async def first(self) -> dict[str, Any]:
        """Return the first line: `ready`, or the reason why it is not."""
        return await self._line()

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one question; return its result."""
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            pipe.write(msgspec.json.encode(request) + b"\n")
            await pipe.drain()
        return await self._line()

    async def end(self) -> None:
        """Kill the process."""
        await kill(self._process)

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = bytearray()
        async with asyncio.TaskGroup() as group:
            errors = group.create_task(self._collect_errors(self._process.stderr))
            while not line.endswith(b"\n"):
                data = await self._process.stdout.read(1 << 16)
                line += data
                if not data or len(line) > OUTPUT_CAP:
                    break
            if not line.endswith(b"\n"):
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await wait_for_exit(self._process)
                        await asyncio.shield(errors)
            errors.cancel()
        try:
            reply = msgspec.json.decode(bytes(line))
        except msgspec.MsgspecError:
            raise _Crashed(self._fate(len(line))) from None
        return dict(reply)

    async def _collect_errors(self, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(1 << 14):
            self._errors += data
            del self._errors[: -(1 << 14)]

    def _fate(self, length: int) -> str:
        if length > OUTPUT_CAP:
            return f"it answered more than {OUTPUT_CAP >> 20} MB"
        code = self._process.returncode
        last_line = self._errors.decode(errors="replace").strip().split("\n")[-1]
        fate = "its process ended" if code is None or code >= 0 else f"killed by signal {-code}"
        return f"no answer: {fate}" + (f": {one_line(last_line, 200)}" if last_line else "")


class PythonTarget(TargetBase):
    """`module:function`, called as `f(query)` or `f(query, context)`; may be async."""

    def __init__(self, spec: PythonSpec, endpoint: ModelEndpoint) -> None:
        super().__init__(spec, endpoint)
        self._spec = spec
        self._idle: list[FunctionWorker] = []

    async def close(self) -> None:
        """End the idle processes."""
        while self._idle:
            await self._idle.pop().end()

    async def ask(
        self,
        question: Question,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: RunCounters,
    ) -> Answer | None:
        """See `Target.ask`; a function that failed is not called again for the same question."""
        spec, began = self._spec, time.monotonic()
        try:
            async with asyncio.timeout(spec.timeout):
                reply = await self._call(question)
        except TimeoutError:
            return self.failed(f"no answer within {spec.timeout:g} s: killed", began)
        except _Crashed as error:
            return self.failed(str(error), began)
        if "broken" in reply:
            raise Unreachable(self.hide(str(reply["broken"])), str(spec.path), "See its `function`")
        if error_text := reply.get("error"):
            return self.failed(str(error_text), began)
        text = str(reply.get("answer", "")).strip()
        if not text:
            return self.failed("it returned an empty answer", began)
        return Answer(text=text, seconds=time.monotonic() - began)

    async def _call(self, question: Question) -> dict[str, Any]:
        values = self.values(question)
        own = {name: self._env[name] for name in self._spec.env}
        overrides = {name: fill(text, values) for name, text in self._spec.set.items()}
        environ = {**own, **_addresses(values), **overrides}
        context = {name: value for name, value in values.items() if not name.startswith("env:")}
        worker = self._idle.pop() if self._idle else None
        fresh = worker is None
        if worker is None:
            worker = await FunctionWorker.begin(self._spec, environ)
        reusable = False
        try:
            if fresh:
                reply = await worker.first()
                if "broken" in reply:
                    return reply
            reply = await worker.ask({**context, "turn": question.turn, "environ": environ})
            reusable = True
            return reply
        finally:
            if reusable and not self._spec.fresh:
                self._idle.append(worker)
            else:
                await worker.end()


def _addresses(values: dict[str, Any]) -> dict[str, str]:
    """Return the environment that OpenAI and Anthropic clients without arguments read."""
    return {
        "OPENAI_BASE_URL": values["base_url"],
        "OPENAI_API_KEY": values["api_key"],
        "ANTHROPIC_BASE_URL": values["root_url"],
        "ANTHROPIC_AUTH_TOKEN": values["api_key"],
    }
