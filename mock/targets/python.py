"""A Python function as a target, in its own process: it may hang, crash or print."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from mock.targets.answers import NoAnswer
from mock.targets.base import OUTPUT_CAP, ModelEndpoint
from mock.targets.process import ERROR_CAP, ProcessTarget, Program, environment
from mock.targets.question import Question, Unreachable
from mock.targets.spec import PythonSpec

_PACKAGES = str(Path(__file__).resolve().parents[2])


class PythonTarget(ProcessTarget):
    """`module:function`, called as `f(query)` or `f(query, context)`; may be async."""

    def __init__(self, spec: PythonSpec, endpoint: ModelEndpoint) -> None:
        super().__init__(spec, endpoint)
        self._spec = spec
        self._idle: list[Program] = []

    async def close(self) -> None:
        """End the idle processes."""
        while self._idle:
            await self._idle.pop().kill()

    async def answer(self, question: Question) -> str:
        async with asyncio.timeout(self._spec.timeout):
            reply = await self._call(question)
        if broken := reply.get("broken"):
            raise Unreachable(str(broken), todo="See its `function`")
        if error := reply.get("error"):
            raise NoAnswer(str(error))
        if text := str(reply.get("answer", "")).strip():
            return text
        raise NoAnswer("it returned an empty answer")

    async def _call(self, question: Question) -> dict[str, Any]:
        values = self.values(question)
        environ = {**_addresses(values), **self.variables(values, self._spec.set)}
        context = {name: value for name, value in values.items() if not name.startswith("env:")}
        worker, reply = self._idle.pop() if self._idle else None, {}
        reusable = False
        try:
            if worker is None:
                worker = await self._start(environ)
                reply = await _reply(worker)  # whether the function was found
            if "broken" not in reply:
                assert worker.process.stdin is not None
                request = {**context, "turn": question.turn, "environ": environ}
                with suppress(BrokenPipeError, ConnectionResetError):
                    worker.process.stdin.write(msgspec.json.encode(request) + b"\n")
                    await worker.process.stdin.drain()
                reply = await _reply(worker)
                reusable = not self._spec.fresh and worker.error_size < ERROR_CAP
            return reply
        finally:
            if worker is not None and reusable:
                self._idle.append(worker)
            elif worker is not None:
                await worker.kill()

    async def _start(self, environ: dict[str, str]) -> Program:
        folder = self._spec.works_in
        paths = [str(folder), _PACKAGES, os.environ.get("PYTHONPATH", "")]
        env = environment({**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))})
        argv = [sys.executable, "-u", "-m", "mock.python_worker", self._spec.function]
        return await Program.start(argv, env=env, folder=folder)


async def _reply(worker: Program) -> dict[str, Any]:
    """Return the next line of the process; raises `NoAnswer` without one."""
    assert worker.process.stdout is not None
    try:
        line = await worker.process.stdout.readline()
    except ValueError:  # longer than the limit
        raise NoAnswer(f"it answered more than {OUTPUT_CAP >> 20} MB") from None
    try:
        return dict(msgspec.json.decode(line))
    except msgspec.MsgspecError:
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await worker.wait()
    code = worker.code
    fate = "its process ended" if code is None or code >= 0 else f"killed by signal {-code}"
    last_line = worker.errors.decode(errors="replace").strip().split("\n")[-1]
    raise NoAnswer(f"no answer: {fate}" + (f": {one_line(last_line, 200)}" if last_line else ""))


def _addresses(values: dict[str, Any]) -> dict[str, str]:
    """Return the environment that OpenAI and Anthropic clients without arguments read."""
    return {
        "OPENAI_BASE_URL": values["base_url"],
        "OPENAI_API_KEY": values["api_key"],
        "ANTHROPIC_BASE_URL": values["root_url"],
        "ANTHROPIC_AUTH_TOKEN": values["api_key"],
    }
