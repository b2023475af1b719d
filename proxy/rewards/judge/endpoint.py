"""The calls of a judge to its endpoint: the list of models, and one reply to a question."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ajet_swarm.runtime import Clock
from core.openai.api import ApiAnswer, CallFailed, OpenAIApi, RequestShape
from core.openai.errors import retry_after
from proxy.rewards.judge.prompt import Messages
from proxy.rewards.judge.settings import JudgeFault, Options
from proxy.upstream.errors import LATER
from proxy.upstream.transport import ModelList

BODY_LIMIT = 2 << 20
"""Maximum number of bytes of an answer that are read."""
LIST_LIMIT = 10.0
"""Time limit of the list of models in seconds."""
_RETRIED_STATUSES = LATER | {408, 409, 425}


class JudgeReply(msgspec.Struct, frozen=True):
    """The reply of a judge to one question."""

    text: str
    cut: bool
    """Whether it ended at the limit of tokens."""
    tokens: tuple[int, int] | None
    """Of the prompt and of the reply; None when the endpoint does not report them."""
    seconds: float


class JudgeClient:
    """Client of one judge's endpoint.

    Args:
        options: Settings of the judge.
        url: Base URL of the API.
        key: API key; empty to send none.
        on_sent: Called for each request that is sent.
        clock: The clocks of the process.
    """

    def __init__(
        self, options: Options, url: str, key: str, on_sent: Callable[[], None], clock: Clock
    ) -> None:
        self.url = url
        self._options = options
        self._on_sent = on_sent
        self._wall = clock.wall
        self._api = OpenAIApi(
            url,
            key=key,
            headers={
                "accept-encoding": "identity",  # a compressed body could expand to a large one
                # the endpoint may be this proxy: it must neither train on verdicts nor judge them
                "x-ajet-train": "no",
                "x-ajet-judge": "yes",
            },
            connections=options.concurrency + 2,
            body_limit=BODY_LIMIT,
            shape=RequestShape(form="schema"),
            clock=clock.monotonic,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def models(self) -> list[str] | None:
        """Return the names of the models that the endpoint lists; None if it has no such route.

        Raises:
            JudgeFault: the endpoint gave no answer, or refused the key.
        """
        seconds = min(LIST_LIMIT, self._options.timeout)
        try:
            answer = await self._api.call("GET", "/models", None, seconds=seconds)
        except CallFailed as failure:
            raise self._no_answer(failure) from None
        if answer.status in (401, 403) or answer.status in LATER or answer.status >= 500:
            raise self._refused(answer)
        try:
            listed = msgspec.json.decode(answer.body, type=ModelList)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return [model.id for model in listed.data] if answer.status == 200 else None

    async def ask(
        self, model: str, messages: Messages, schema: dict[str, Any], name: str
    ) -> JudgeReply:
        """Return the reply to one question.

        Raises:
            JudgeFault: the endpoint gave no usable reply.
        """

        def body(shape: RequestShape) -> dict[str, Any]:
            self._on_sent()
            return self._body(shape, model, messages, {"name": name, "schema": schema})

        seconds = self._options.timeout
        try:
            answer = await self._api.adapt(body, "/chat/completions", seconds=seconds)
        except CallFailed as failure:
            raise self._no_answer(failure) from None
        if answer.status != 200:
            raise self._refused(answer)
        return self._reply(answer)

    def _body(
        self, shape: RequestShape, model: str, messages: Messages, form: Mapping[str, Any]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "messages": messages if shape.system else _merged(messages),
            shape.limit: self._options.max_tokens,
            **self._options.extra,
        }
        if shape.temperature and "temperature" not in self._options.extra:
            body["temperature"] = self._options.temperature
        if shape.form == "schema":
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"strict": True, **form},
            }
        elif shape.form == "object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _no_answer(self, failure: CallFailed) -> JudgeFault:
        if failure.kind in ("late", "too_large"):
            return JudgeFault(failure.text, again=failure.kind == "late")
        return JudgeFault(f"no answer from {self.url}: {failure.text}", again=True)

    def _reply(self, answer: ApiAnswer) -> JudgeReply:
        try:
            completion = msgspec.json.decode(answer.body, type=_Completion)
            choice = completion.choices[0]
        except (msgspec.MsgspecError, IndexError, RecursionError):
            kind = answer.headers.get("content-type", "").partition(";")[0] or "no type"
            raise JudgeFault(
                f"the reply is not a chat completion ({kind}, {len(answer.body)} bytes)", again=True
            ) from None
        return JudgeReply(
            text=self._api.hide(choice.message.content or ""),
            cut=choice.finish_reason == "length",
            tokens=_tokens(completion.usage),
            seconds=answer.seconds,
        )

    def _refused(self, answer: ApiAnswer) -> JudgeFault:
        again = answer.status in _RETRIED_STATUSES or answer.status >= 500
        wait = retry_after(answer.headers, self._wall)
        return JudgeFault(answer.fault, again=again, wait=wait, status=answer.status)


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: Any = None


def _tokens(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    prompt, reply = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    valid = all(type(count) is int and 0 <= count < 1 << 40 for count in (prompt, reply))
    return (prompt, reply) if valid else None  # type: ignore[return-value]  # both are int here


def _merged(messages: Messages) -> Messages:
    """Return the messages for a model without a system role."""
    if messages[0]["role"] != "system" or len(messages) < 2:
        return messages
    first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
    return [first, *messages[2:]]
