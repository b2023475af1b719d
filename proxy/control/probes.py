"""Probe prompts: one eval episode each, answered and never trained on.

A probe is a request like any other with `X-Ajet-Train: no`: the group's life cycle claims one eval
episode for it, ends or aborts it, and shows it among the requests. Two further events record prompt
and answer, so that answers of different training steps can be compared.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from core.commands.spec import Handler, NotNow
from core.dialects.errors import ApiError
from core.dialects.request import public_answer
from core.events import TryAnswered, TryAsked
from proxy.admission.registry import Groups
from proxy.context import ProxyContext, ServerHandle
from proxy.control.group_commands import GroupCommands, await_answer, own_request
from proxy.dialects.request import ChatRequest
from proxy.groups.answer import AnswerWaiter, FinalAnswer

log = logging.getLogger(__name__)


class PromptProbes:
    """The probes of one proxy.

    Args:
        context: The proxy's shared parts.
        groups: The registry that admits requests.
        group_commands: Aborts the group of a cancelled probe.
    """

    def __init__(
        self, context: ProxyContext, groups: Groups, group_commands: GroupCommands
    ) -> None:
        self.context = context
        self.groups = groups
        self._group_commands = group_commands
        self.table: Mapping[str, Handler] = {
            "engine.try": self._try,
            "engine.try_stop": self._stop,
        }
        self._running: dict[str, AnswerWaiter] = {}
        """By probe id, oldest first."""
        self._cancelled: set[str] = set()

    def _try(self, prompt: str, server: str = "", try_id: str = "") -> str:
        handle = self.context.server_of(server)
        try_id = try_id or self.context.runtime.chance.token(4)
        try:
            waiter = self.groups.admission.admit(self._request(prompt, handle, try_id))
        except ApiError as refusal:
            state = handle.watcher.current.display_state.value
            what = f"it cannot be tried now: {handle.name} is {state}"
            raise NotNow(what, todo=refusal.message) from None
        self.context.bus.publish(
            TryAsked(
                try_id=try_id, group_id=waiter.group_id, prompt=prompt, **self._weights(handle)
            )
        )
        self._running[try_id] = waiter
        self.context.tasks.spawn(self._wait(try_id, handle, waiter), f"try:{try_id}")
        return f"{handle.name} is asked: try {try_id}, group {waiter.group_id}"

    def _request(self, prompt: str, server: ServerHandle, try_id: str) -> ChatRequest:
        # A request selects its server by its model field; a model name selects the first server.
        first = next(iter(self.context.servers))
        model = self.groups.models()[0] if server.name == first else server.name
        body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
        chance, name = self.context.runtime.chance, f"try-{try_id}"
        return own_request(chance, name, body, query=prompt, model=model, train=False, headers={})

    async def _wait(self, try_id: str, server: ServerHandle, waiter: AnswerWaiter) -> None:
        """Receive the answer of a probe as its user, and publish the result however it ends."""
        started_at = self.context.runtime.clock.monotonic()
        result = TryAnswered(try_id=try_id, error="the proxy stopped before the answer came")
        try:
            if (reply := await await_answer(waiter)) is not None:
                result = _result(try_id, reply, cancelled=try_id in self._cancelled)
        finally:
            self._running.pop(try_id, None)
            self._cancelled.discard(try_id)
            seconds = self.context.runtime.clock.monotonic() - started_at
            self.context.bus.publish(
                msgspec.structs.replace(result, seconds=seconds, **self._weights(server))
            )

    def _weights(self, server: ServerHandle) -> dict[str, Any]:
        """Return the server of an event, and the step and the training run of its weights now."""
        run = self.context.bus.state.run_of(server.name)
        return {"server": server.name, "step": server.watcher.current.step, "run": run}

    async def _stop(self, try_id: str = "") -> str:
        try_id = try_id or next(reversed(self._running), "")
        waiter = self._running.get(try_id)
        if waiter is None:
            raise NotNow("no such try runs", try_id, "It may have been answered meanwhile")
        self._cancelled.add(try_id)
        try:
            await self._group_commands.abort(waiter.group_id, "the try was cancelled")
        except NotNow:
            self._cancelled.discard(try_id)
            raise
        return f"try {try_id} is cancelled"


def _result(try_id: str, reply: FinalAnswer, *, cancelled: bool) -> TryAnswered:
    if reply.answer is None:
        why = reply.error.message if reply.error is not None else "there was no answer"
        return TryAnswered(try_id=try_id, error="cancelled" if cancelled else why)
    answer = public_answer(reply.answer.parsed)
    return TryAnswered(
        try_id=try_id,
        text=answer.content or "",
        reasoning=answer.reasoning or "",
        tool_calls=msgspec.json.encode(answer.tool_calls).decode() if answer.tool_calls else "",
        finish_reason=answer.finish_reason,
        tokens=answer.usage["completion_tokens"],
    )
