"""One call to an OpenAI-compatible endpoint: what it takes is found out from its errors."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import msgspec

from ajet_swarm.common.text import one_line
from core.runtime.sockets import is_loopback
from proxy.http.upstream_errors import LATER, fault, hide
from proxy.rewards.judge.prompt import Messages
from proxy.rewards.judge.settings import Options

BODY_LIMIT = 2 << 20
"""Bytes of an answer that are read."""
LIST_LIMIT = 10.0
"""Seconds the list of models may take."""

Form = Literal["schema", "object", "text"]

_FORM_WORDS = (
    "response_format",
    "response format",
    "json_schema",
    "json_object",
    "json schema",
    "json mode",
    "structured",
    "guided",
    "grammar",
)
_AGAIN = frozenset({408, 409, 425})


class JudgeFault(Exception):
    """A call that came to nothing.

    Attributes:
        text: Why, on one line, without the key.
        again: The same call may work later.
        wait: Seconds the endpoint asks to wait; None when it does not.
        status: Of the HTTP answer; 0 without one.
    """

    def __init__(
        self, text: str, *, again: bool, wait: float | None = None, status: int = 0
    ) -> None:
        self.text = one_line(text, 300)
        self.again = again
        self.wait = wait
        self.status = status
        super().__init__(self.text)


class Reply(msgspec.Struct, frozen=True):
    """What came back."""

    text: str
    cut: bool
    """It ended at the limit of tokens."""
    tokens: tuple[int, int] | None
    """Of the prompt and of the reply; None when the endpoint does not tell."""
    seconds: float


class Shape(msgspec.Struct, frozen=True):
    """What the endpoint is known to take; each thing it refuses is left out from then on."""

    form: Form = "schema"
    limit: str = "max_tokens"
    """Name of the field; newer models of OpenAI want `max_completion_tokens`."""
    temperature: bool = True
    system: bool = True

    def without(self, refusal: str) -> "Shape | None":
        """The shape that heeds a refusal; None when nothing of it is to blame."""
        text = refusal.lower()
        change: dict[str, Any] = {}
        if "max_completion_tokens" in text and self.limit == "max_tokens":
            change = {"limit": "max_completion_tokens"}
        elif "temperature" in text and self.temperature:
            change = {"temperature": False}
        elif "system" in text and "role" in text and self.system:
            change = {"system": False}
        elif self.form != "text" and any(word in text for word in _FORM_WORDS):
            change = {"form": "object" if self.form == "schema" else "text"}
        return msgspec.structs.replace(self, **change) if change else None


class Wire:
    """The endpoint of one judge.

    Args:
        options: Of the judge.
        url: Base URL of the API.
        key: Empty sends none.
        sent: Called for each request that goes out.
    """

    def __init__(
        self, options: Options, url: str, key: str, sent: Callable[[], None] = lambda: None
    ) -> None:
        self.url = url
        self.shape = Shape()
        self._options = options
        self._key = key
        self._sent = sent
        host = urlsplit(url).hostname or ""
        self._client = httpx.AsyncClient(
            headers={
                "accept-encoding": "identity",  # a small body that unfolds into a large one
                # it may be the fake vLLM: verdicts are no answers to train on, or to judge
                "x-ajet-train": "no",
                "x-ajet-judge": "yes",
                **({"authorization": f"Bearer {key}"} if key else {}),
            },
            timeout=None,  # each call has its own, over all of it
            limits=httpx.Limits(max_connections=options.concurrency + 2),
            trust_env=not is_loopback(host),
            verify=url.startswith("https:"),  # without TLS no certificates are read
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def models(self) -> list[str] | None:
        """Names of the models it lists; None when it has no such route.

        Raises:
            JudgeFault: it gave no answer, or refused the key.
        """
        seconds = min(LIST_LIMIT, self._options.timeout)
        status, headers, body = await self._exchange("GET", "/models", None, seconds)
        if status in (401, 403) or status in LATER or status >= 500:
            raise self._refused(status, headers, body)
        try:
            listed = msgspec.json.decode(body, type=_Listed)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return [one.id for one in listed.data] if status == 200 else None

    async def ask(self, model: str, messages: Messages, schema: dict[str, Any], name: str) -> Reply:
        """One reply.

        Raises:
            JudgeFault: there is none.
        """
        while True:
            shape = self.shape
            try:
                return await self._ask(shape, model, messages, schema, name)
            except JudgeFault as refusal:
                if refusal.status not in (400, 422, 500, 501):
                    raise
                other = shape.without(refusal.text)
                if other is None:
                    raise
                if self.shape == shape:  # else another call has learnt it meanwhile
                    self.shape = other

    async def _ask(
        self, shape: Shape, model: str, messages: Messages, schema: dict[str, Any], name: str
    ) -> Reply:
        body: dict[str, Any] = {
            "model": model,
            "messages": messages if shape.system else _merged(messages),
            shape.limit: self._options.max_tokens,
            **self._options.extra,
        }
        if shape.temperature and "temperature" not in self._options.extra:
            body["temperature"] = self._options.temperature
        if shape.form == "schema":
            form = {"name": name, "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        elif shape.form == "object":
            body["response_format"] = {"type": "json_object"}
        began = time.monotonic()
        self._sent()
        status, headers, answer = await self._exchange(
            "POST", "/chat/completions", msgspec.json.encode(body), self._options.timeout
        )
        if status != 200:
            raise self._refused(status, headers, answer)
        return self._reply(headers, answer, time.monotonic() - began)

    async def _exchange(
        self, method: str, path: str, body: bytes | None, seconds: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"content-type": "application/json"} if body is not None else {}
        found = bytearray()
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(
                    method, self.url + path, content=body, headers=headers
                ) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    found += piece
                    if len(found) > BODY_LIMIT:
                        raise JudgeFault("its answer is larger than 2 MiB", again=False)
                return answer.status_code, answer.headers, bytes(found)
        except TimeoutError:
            raise JudgeFault(f"no answer within {seconds:g} s", again=True) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = hide(str(error), self._key) or type(error).__name__
            raise JudgeFault(f"no answer from {self.url}: {text}", again=True) from None

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> JudgeFault:
        try:
            found = fault(status, headers, body, self._key)
        except RecursionError:  # nested without end: it says nothing
            found = fault(status, headers, b"", self._key)
        again = status in LATER or status in _AGAIN or status >= 500
        text = found.text if str(status) in found.text else f"{status}: {found.text}"
        return JudgeFault(text, again=again, wait=found.retry_after, status=status)

    def _reply(self, headers: Mapping[str, str], body: bytes, seconds: float) -> Reply:
        try:
            told = msgspec.json.decode(body, type=_Completion)
            choice = told.choices[0]
        except (msgspec.MsgspecError, IndexError, RecursionError):
            kind = headers.get("content-type", "").partition(";")[0] or "no type"
            raise JudgeFault(
                f"what came is no chat completion ({kind}, {len(body)} bytes)", again=True
            ) from None
        return Reply(
            text=hide(choice.message.content or "", self._key),
            cut=choice.finish_reason == "length",
            tokens=_tokens(told.usage),
            seconds=seconds,
        )


class _Card(msgspec.Struct):
    id: str


class _Listed(msgspec.Struct):
    data: list[_Card]


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
    good = all(type(one) is int and 0 <= one < 1 << 40 for one in (prompt, reply))
    return (prompt, reply) if good else None  # type: ignore[return-value]  # both are int here


def _merged(messages: Messages) -> Messages:
    """The messages for a model that knows no system role."""
    if messages[0]["role"] != "system" or len(messages) < 2:
        return messages
    first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
    return [first, *messages[2:]]
