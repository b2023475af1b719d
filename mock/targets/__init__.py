"""The way the user's words take: from a target file to a `Target`, tried with one dry row."""

import asyncio
import contextlib
import secrets
import signal
import time
from dataclasses import dataclass
from typing import Any

import httpx

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from mock.control import Control, ControlDown, ControlRefused
from mock.tally import Tally
from mock.targets.base import Local, Setting, session_name
from mock.targets.command import Command
from mock.targets.dialects import FORMS
from mock.targets.http import Http
from mock.targets.openai import Answer, OpenAITarget, Question, Target
from mock.targets.python import Function
from mock.targets.spec import CommandSpec, FakeSpec, HttpSpec, PythonSpec, Spec
from mock.targets.templates import fill

DRY_PATIENCE = 10.0
"""Seconds an application may be away when it is tried."""
_ENDING = (signal.SIGINT, signal.SIGTERM)
_LOOKS = 40
_LOOK = 0.05
_RELEASE = 3.0


class TargetFailed(AjetError):
    """The target did not answer the dry row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a dry row."""

    text: str
    seconds: float
    group: str = ""
    """The group it became; empty when the proxy saw nothing of it, or is not known."""
    trained: bool | None = None
    """Whether its group is trained on; None when that is not known."""
    seen: bool | None = None
    """Whether the proxy saw it; None without a proxy."""

    def lines(self, name: str) -> list[str]:
        """All of it for people."""
        told = [f"{name} answered in {self.seconds:.1f} s: {one_line(self.text, 300)}"]
        if self.seen is None:
            told.append("no proxy is known: rows get no reference, and this row may be trained on")
        elif not self.seen:
            told.append(
                "the proxy saw no request of it that it could tell by header, session or text: "
                "rows will get no reference, and this row may have been trained on"
            )
        else:
            what = "it IS trained on" if self.trained else "not trained on"
            told.append(f"it reached the proxy as group {self.group}, {what}")
        return told


def open_target(
    spec: Spec,
    setting: Setting,
    connections: int = 3,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Target:
    """Return the target that a file describes.

    Args:
        spec: What the file says.
        setting: Where the run takes place.
        connections: Requests at the same time.
        transport: How requests of the program travel; the network when left out.
    """
    if isinstance(spec, CommandSpec):
        return Command(spec, setting)
    if isinstance(spec, HttpSpec):
        return Http(spec, setting, connections, transport)
    if isinstance(spec, PythonSpec):
        return Function(spec, setting)
    assert isinstance(spec, FakeSpec)
    own = Local(spec, setting)
    values = own.values(Question(query="", messages=(), sent_id=""))
    foreign = bool(spec.base_url)  # our key and certificate are none of its business
    return OpenAITarget(
        spec.base_url or setting.base_url,
        model=str(values["model"]),
        api_key="" if foreign else setting.api_key,
        cert="" if foreign else setting.cert,
        timeout=spec.timeout,
        connections=connections,
        transport=transport,
        name=spec.told,
        form=FORMS[spec.dialect],
        headers={name: fill(text, values) for name, text in spec.headers.items()},
        params=spec.params,
    )


async def try_target(target: Target, spec: Spec, control: Control | None) -> Tried:
    """Ask the dry row: nothing is trained on it where the proxy can tell it.

    Raises:
        TargetFailed: there is no answer; says why.
        Unreachable: the target is not there, or cannot be started.
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
        told = await _announce(control, question)
        began = time.monotonic()
        try:
            answer = await target.ask(question, _rest, DRY_PATIENCE, Tally())
        finally:
            await target.over(question.session)
        where = str(spec.path)
        if answer is None or answer.error:
            cause = answer.error if answer is not None else "stopped"
            raise TargetFailed(f"the dry row `{one_line(spec.dry, 60)}` failed: {cause}", where)
        return await _looked_up(control if told else None, question, answer, began)
    finally:
        if control is not None:
            await _release(control, row_id)


async def try_until_stopped(target: Target, spec: Spec, control: Control | None) -> Tried:
    """`try_target`; SIGINT and SIGTERM end it and what it started. On the main thread only.

    Raises:
        TargetFailed: as of `try_target`, or a signal came.
        Unreachable: as of `try_target`.
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
    """Tell the proxy of the row; False when it does not want to know."""
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
    """Take the announcement back: whoever says the same words later is trained on."""
    with contextlib.suppress(TimeoutError, ControlDown, ControlRefused):
        async with asyncio.timeout(_RELEASE):  # else the proxy forgets the row by itself
            await control.release_row(row_id)


async def _looked_up(
    control: Control | None, question: Question, answer: Answer, began: float
) -> Tried:
    seconds = time.monotonic() - began
    if control is None:
        return Tried(text=answer.text, seconds=seconds)
    for _ in range(_LOOKS):
        try:
            state = await control.snapshot()
        except (ControlDown, ControlRefused):
            return Tried(text=answer.text, seconds=seconds)
        for group in reversed(state.groups.values()):
            if group.row_id == question.sent_id:
                trained = group.episode_type == "train"
                return Tried(
                    text=answer.text,
                    seconds=seconds,
                    group=group.group_id,
                    trained=trained,
                    seen=True,
                )
        await asyncio.sleep(_LOOK)
    return Tried(text=answer.text, seconds=seconds, seen=False)
