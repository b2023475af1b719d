"""Targets: opened from a target file and tried with a dry row."""

import asyncio
import contextlib
import secrets
import signal
from dataclasses import dataclass
from typing import Any

import httpx

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.state import Group
from mock.control import Control, ControlDown, ControlRefused
from mock.tally import RunCounters
from mock.targets.base import ModelEndpoint, session_name
from mock.targets.command import CommandTarget
from mock.targets.fake import FakeTarget
from mock.targets.http import HttpTarget
from mock.targets.plugins import PLUGINS
from mock.targets.python import PythonTarget
from mock.targets.question import Patience, Question, Target
from mock.targets.spec import CommandSpec, FakeSpec, HttpSpec, PluginSpec, PythonSpec, Spec

DRY_PATIENCE = 10.0
"""Seconds that an application may be unreachable in a dry run."""
_ENDING = (signal.SIGINT, signal.SIGTERM)
_MAX_POLLS = 40
_POLL_INTERVAL = 0.05
_RELEASE = 3.0


class TargetFailed(AjetError):
    """The target did not answer the dry row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """Result of a dry row."""

    text: str
    seconds: float
    group: str = ""
    """Id of its group; empty when the proxy saw nothing of it or there is no proxy."""
    trained: bool | None = None
    """Whether the group is trained on; None when unknown."""
    seen: bool | None = None
    """Whether the proxy saw the row; None without a proxy."""

    def lines(self, name: str) -> list[str]:
        """Return the result as lines of text."""
        lines = [f"{name} answered in {self.seconds:.1f} s: {one_line(self.text, 300)}"]
        if self.seen is None:
            lines.append("there is no proxy: rows get no reference, and this row may be trained on")
        elif not self.seen:
            lines.append(
                "the proxy saw no request that matched it by header, session or text: "
                "rows will get no reference, and this row may have been trained on"
            )
        else:
            what = "it IS trained on" if self.trained else "not trained on"
            lines.append(f"it reached the proxy as group {self.group}, {what}")
        return lines


def open_target(
    spec: Spec,
    endpoint: ModelEndpoint,
    connections: int = 3,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Target:
    """Return the target that a target file describes.

    Args:
        spec: The target file.
        endpoint: The model that the application calls.
        connections: Maximum number of concurrent requests.
        transport: Transport of the program's requests; the network by default.
    """
    if isinstance(spec, CommandSpec):
        return CommandTarget(spec, endpoint)
    if isinstance(spec, HttpSpec):
        return HttpTarget(spec, endpoint, connections, transport)
    if isinstance(spec, PythonSpec):
        return PythonTarget(spec, endpoint)
    if isinstance(spec, PluginSpec):
        return PLUGINS.load(spec.plugin).make(spec, endpoint)
    assert isinstance(spec, FakeSpec)
    return FakeTarget(spec, endpoint, connections, transport)


async def try_target(target: Target, spec: Spec, control: Control | None) -> DryRunResult:
    """Ask the dry row; it is not trained on where the proxy can match it.

    Raises:
        TargetFailed: there is no answer; gives the reason.
        Unreachable: the target cannot be reached or started.
    """
    row_id = f"dry-{secrets.token_hex(4)}"
    question = Question(
        query=spec.dry,
        messages=({"role": "user", "content": spec.dry},),
        sent_id=row_id,
        session=session_name("mock", row_id) if target.in_session else "",
        train=False,
    )
    try:
        announced = await _announce(control, question)
        patience = Patience(rest=_rest, seconds=DRY_PATIENCE, counters=RunCounters())
        try:
            answer = await target.ask(question, patience)
        finally:
            await target.end_conversation(question.session)
        where = str(spec.path)
        if answer is None or answer.error:
            cause = answer.error if answer is not None else "stopped"
            raise TargetFailed(f"the dry row `{one_line(spec.dry, 60)}` failed: {cause}", where)
        group, seen = await _find_group(control if announced else None, row_id)
        return DryRunResult(
            text=answer.text,
            seconds=answer.seconds,
            group=group.group_id if group is not None else "",
            trained=group.episode_type == "train" if group is not None else None,
            seen=seen,
        )
    finally:
        if control is not None:
            await _release(control, row_id)


async def try_until_stopped(target: Target, spec: Spec, control: Control | None) -> DryRunResult:
    """Run `try_target`; SIGINT and SIGTERM end it and its child processes. Main thread only.

    Raises:
        TargetFailed: see `try_target`; or a signal came.
        Unreachable: see `try_target`.
    """
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    for number in _ENDING:
        loop.add_signal_handler(number, lambda: limit.reschedule(loop.time()))
    try:
        async with limit:
            return await try_target(target, spec, control)
    except TimeoutError:
        raise TargetFailed("stopped while the dry row was asked", str(spec.path)) from None
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


async def _rest(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return False


async def _announce(control: Control | None, question: Question) -> bool:
    """Announce the row to the proxy; return False when the proxy refuses."""
    if control is None:
        return False
    row: dict[str, Any] = {
        "row_id": question.sent_id,
        "query": question.query,
        "session": question.session,
        "train": False,
    }
    try:
        await control.register_row(row)
    except (ControlDown, ControlRefused) as error:
        if isinstance(error, ControlRefused) and error.status in (401, 403):
            raise
        return False
    return True


async def _release(control: Control, row_id: str) -> None:
    """Withdraw the announcement, so that later requests with the same text are trained on."""
    with contextlib.suppress(TimeoutError, ControlDown, ControlRefused):
        async with asyncio.timeout(_RELEASE):  # after a timeout the proxy drops the row by itself
            await control.release_row(row_id)


async def _find_group(control: Control | None, row_id: str) -> tuple[Group | None, bool | None]:
    """Return the group of a row, and whether the proxy saw it; None when that is unknown."""
    if control is None:
        return None, None
    for _ in range(_MAX_POLLS):
        try:
            state = await control.snapshot()
        except (ControlDown, ControlRefused):
            return None, None
        for group in reversed(state.groups.values()):
            if group.row_id == row_id:
                return group, True
        await asyncio.sleep(_POLL_INTERVAL)
    return None, False
