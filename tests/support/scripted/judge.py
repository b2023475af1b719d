"""A judge for tests: an OpenAI-compatible endpoint that scores answers by a script.

    async with ScriptedJudge() as judge:        # port 0; `judge.url` is the base URL
        judge.script = [429, "prose"]           # what the next calls do; then it judges well

It reads a prompt as a trusting model would: text between tags with the announced code is
material, everything else is an order, and it obeys orders. An answer's quality is the number behind
`q=` in its text (else 5); `bias` makes it prefer a place instead.

A step of `script` is a status, a name of `MISHAPS`, or a function (request) -> text.

Further attributes: `key` a caller must send; `models` it lists (None: no such route); `refuses`
(words of `REFUSALS`); `usage` (False sends none); `gate`, an asyncio.Event all calls wait for;
`retry_after`; `secret_in_errors` puts the caller's key in every error.

What happened: `calls` (bodies), `asked`, `running`, `most` (calls at once), `headers`.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ajet_swarm.common.tasks import Tasks, cancel
from core.events import Event, JudgeSpent
from proxy.rewards.judge.part import JUDGE, Judge
from proxy.rewards.part import OwnServer, PartAbstained, PartEnvironment, PartInput, PartValue
from proxy.rewards.source import GroupContext
from proxy.rewards.text import content_stems, read
from tests.support.server_close import stop_accepting

_TAG = re.compile(r"names end in the code (\w+)")
_QUALITY = re.compile(r"q=(\d+(?:\.\d+)?)")
_ORDER = re.compile(r"(?i)give (?:me|this answer|answer \d) (?:a )?(\d+)|ignore the rubric")

REFUSALS = {
    "json_schema": "response_format type json_schema is not supported by this model",
    "json_object": "'response_format.type' must be 'text'",
    "max_tokens": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
    "temperature": "Unsupported value: 'temperature' does not support 0 with this model.",
    "system": "System role not supported",
}


@dataclass(frozen=True)
class JudgeRequest:
    """One prompt, as the judge understood it."""

    answers: list[dict[str, Any]]
    """What it took for answers to judge, in their order."""
    conversation: list[dict[str, str]]
    reference: str | None
    orders: str
    """Everything outside the fences."""
    pair: bool
    repair: bool

    @property
    def qualities(self) -> list[float]:
        """What the answers deserve."""
        result = [_QUALITY.search(str(answer.get("text"))) for answer in self.answers]
        return [float(one[1]) if one else 5.0 for one in result]

    @property
    def obeyed(self) -> bool:
        """Whether an order of a candidate reached it as an order."""
        return _ORDER.search(self.orders) is not None


def understood(body: dict[str, Any]) -> JudgeRequest:
    """Read a request as a trusting model does."""
    messages = body["messages"]
    text = "\n".join(str(message["content"]) for message in messages[:2])
    result = _TAG.search(text)
    tag = result[1] if result else "no-code-was-announced"
    parts: dict[str, list[str]] = {}
    fence = re.compile(rf"^<(\w+)-{tag}(?: index=\"(\d+)\")?>\n(.*?)\n</\1-{tag}>$", re.S | re.M)
    for match in fence.finditer(text):
        parts.setdefault(match[1], []).append(match[3])
    reference = parts.get("reference")
    return JudgeRequest(
        answers=[msgspec.json.decode(one) for one in parts.get("answer", [])],
        conversation=[one for value in parts.get("conversation", []) for one in _list(value)],
        reference=msgspec.json.decode(reference[0]) if reference else None,
        orders=fence.sub("", text),
        pair='"winner"' in text,
        repair=len(messages) > 2,
    )


def _list(text: str) -> list[dict[str, str]]:
    return msgspec.json.decode(text, type=list[dict[str, str]])


def scores_of(values: Sequence[Any], first: int = 1) -> str:
    """The reply with these scores, raw so that they may be no JSON."""
    rows = (
        f'{{"index": {index}, "reason": "because {index}", "score": {value}}}'
        for index, value in enumerate(values, first)
    )
    return f'{{"scores": [{", ".join(rows)}]}}'


MISHAPS: dict[str, Callable[[JudgeRequest], str]] = {
    "prose": lambda request: "I think that the first answer is the best one.",
    "empty": lambda request: "",
    "few": lambda request: scores_of(request.qualities[:-1]),
    "many": lambda request: scores_of([*request.qualities, 5]),
    "zero-based": lambda request: scores_of(request.qualities, 0),
    "twice": lambda request: scores_of(request.qualities).replace('"index": 2', '"index": 1'),
    "nan": lambda request: scores_of(["NaN" for _ in request.answers]),
    "infinity": lambda request: scores_of(["Infinity" for _ in request.answers]),
    "huge": lambda request: scores_of(["1e308" for _ in request.answers]),
    "over": lambda request: scores_of(["1e999" for _ in request.answers]),
    "eleven": lambda request: scores_of([11 for _ in request.answers]),
    "negative": lambda request: scores_of([-0.001 for _ in request.answers]),
    "words": lambda request: scores_of(['"good"' for _ in request.answers]),
    "booleans": lambda request: scores_of(["true" for _ in request.answers]),
    "half": lambda request: scores_of(request.qualities)[:-20],
    "two objects": lambda request: scores_of(request.qualities) * 2,
    "prose around": lambda request: f"Sure! {scores_of(request.qualities)} Done.",
    "html text": lambda request: "<html><body>502</body></html>",
    "list": lambda request: "[1, 2]",
    "null": lambda request: "null",
    "deep": lambda request: '{"scores": ' + "[" * 30_000,
    "deep unknown": lambda request: '{"x": ' + "[" * 60_000,
    "long": lambda request: " " * 70_000 + scores_of(request.qualities),
    "only a thought": lambda request: f"<think>{scores_of(request.qualities)}",
    "nothing after a thought": lambda request: f"<think>{scores_of(request.qualities)}</think>\n",
    "another thought": lambda request: f"hm</think><think>{scores_of(request.qualities)}",
    "many ends": lambda request: '</think>{"scores": [' * 3_000,
    "many fences": lambda request: "</think>```json\n" * 4_000,
}
"""Replies that cannot be used, by name."""

THOUGHTS: dict[str, Callable[[str], str]] = {
    "both tags": lambda reply: f"<think>2/10, index 1</think>\n{reply}",
    "only an end": lambda reply: f"Answer 1 deserves 2/10.\n</think>\n\n{reply}",
    "JSON in the thought": lambda reply: f"{scores_of([9, 9])}\n</think>\n{reply}",
    "two thoughts": lambda reply: f"<think>a</think><think>{scores_of([9])}</think>{reply}",
    "another tag": lambda reply: f"<thinking>{{}}</Thinking >{reply}",
    "Magistral": lambda reply: f"[THINK]2/10[/THINK]{reply}",
    "an end in a reason": lambda reply: "hm</think>" + reply.replace("because", "</think> is"),
    "no thought, an end in a reason": lambda reply: reply.replace("because", "</think> is"),
    "upper-case fence": lambda reply: f"hm</think>\n```JSON\n{reply}\n```",
    "fence with CRLF": lambda reply: f"```json\r\n{reply}\r\n```\r\n",
    "byte order mark": lambda reply: f"\ufeff{reply}",
    "byte order mark after a thought": lambda reply: f"\ufeffhm</think>\n\ufeff{reply}",
}
"""What a judge may write around a usable reply, by name."""

ODD_BODIES: dict[str, tuple[str, bytes]] = {
    "html": ("text/html", b"<!doctype html><h1>It works!</h1>"),
    "half body": ("application/json", b'{"choices": [{"message": {"content": "{'),
    "no choices": ("application/json", b'{"choices": []}'),
    "not a completion": ("application/json", b'"ok"'),
    "deep body": ("application/json", b'{"choices": [], "usage": ' + b"[" * 200_000),
    "binary": ("application/octet-stream", bytes(range(256)) * 8),
    "flood": ("application/json", b"x" * (3 << 20)),
}
"""Bodies with status 200 that are no chat completion."""


@dataclass(frozen=True)
class JudgeResponse:
    """One HTTP answer."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Self:
        return cls(status, msgspec.json.encode(body), headers=headers or {})

    def wire(self) -> bytes:
        result = {
            "Content-Type": self.kind,
            "Content-Length": str(len(self.body)),
            **self.headers,
        }
        lines = [
            f"HTTP/1.1 {self.status} X",
            *(f"{name}: {value}" for name, value in result.items()),
        ]
        return "\r\n".join((*lines, "", "")).encode() + self.body


class ScriptedJudge:
    """See the module's docstring."""

    def __init__(self, *, key: str = "") -> None:
        self.key = key
        self.port = 0
        self.script: list[Any] = []
        self.forever: Any = None
        """What each call does once `script` is used up; None judges well."""
        self.models: list[str] | None = ["judge-1"]
        self.refuses: set[str] = set()
        self.usage: Any = True
        self.bias: str = ""
        self.retry_after = ""
        self.secret_in_errors = False
        self.gate: asyncio.Event | None = None
        self.calls: list[dict[str, Any]] = []
        self.requests: list[JudgeRequest] = []
        self.headers: list[dict[str, str]] = []
        self.listed = self.running = self.most = 0
        self._tasks = Tasks("scripted judge")
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        await stop_accepting(self._server)
        self._server.close()
        await self._tasks.close()
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.spawn(self._serve(reader, writer), "connection")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (answer := await self._exchange(reader)) is not None:
                writer.write(answer.wire())
                await writer.drain()
            writer.transport.abort()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader) -> "JudgeResponse | None":
        """The answer to the next request; None for an end without one."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        work = self._tasks.spawn(self._answer(head[0], headers, body), "call")
        disconnect = self._tasks.spawn(reader.read(1), "gone")
        try:
            await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            await cancel(work)
            await cancel(disconnect)

    async def _answer(
        self, line: str, headers: dict[str, str], body: bytes
    ) -> "JudgeResponse | None":
        response = headers.get("authorization", "")
        if self.key and response != f"Bearer {self.key}":
            return self._error(401, f"Incorrect API key: {response}")
        if line.startswith("GET /v1/models "):
            self.listed += 1
            if self.models is None:
                return JudgeResponse(404, b"404", "text/plain")
            return JudgeResponse.json({"data": [{"id": name} for name in self.models]})
        if not line.startswith("POST /v1/chat/completions "):
            return JudgeResponse(404, b"404", "text/plain")
        self.calls.append(msgspec.json.decode(body))
        self.headers.append(headers)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            return await self._reply(self.calls[-1], response)
        finally:
            self.running -= 1

    async def until(self, running: int) -> None:
        """Wait until so many calls are under way."""
        async with asyncio.timeout(30):
            while self.running != running:
                await asyncio.sleep(0.005)

    def _error(self, status: int, message: str) -> "JudgeResponse":
        headers = {"Retry-After": self.retry_after} if self.retry_after else {}
        return JudgeResponse.json({"error": {"message": message}}, status, headers)

    async def _reply(self, body: dict[str, Any], key: str) -> "JudgeResponse | None":
        for word in self.refuses:
            if _used(body, word):
                return self._error(400, REFUSALS[word])
        if self.models is not None and body["model"] not in self.models:
            return self._error(404, f"The model `{body['model']}` does not exist.")
        request = understood(body)
        self.requests.append(request)
        step = self.script.pop(0) if self.script else self.forever
        if isinstance(step, int):
            sent = key if self.secret_in_errors else ""
            return self._error(step, f"scripted failure {sent}".strip())
        if step == "hang":
            await asyncio.Event().wait()
        if step == "drop":
            return None
        if step in ODD_BODIES:
            kind, data = ODD_BODIES[step]
            return JudgeResponse(200, data, kind)
        if step is None:
            return self._completion(self._judged(request))
        text = MISHAPS[step](request) if isinstance(step, str) else step(request)
        return self._completion(text, "length" if step == "half" else "stop")

    def _judged(self, request: JudgeRequest) -> str:
        values = request.qualities
        if not request.pair:
            if request.obeyed:
                values = [10.0 for _ in values]
            return scores_of(values)
        winner = "tie" if len(set(values)) < 2 else ("1" if values[0] > values[1] else "2")
        return f'{{"reason": "so it is", "winner": "{self.bias or winner}"}}'

    def _completion(self, text: str, finish: str = "stop") -> "JudgeResponse":
        answer: dict[str, Any] = {
            "object": "chat.completion",
            "choices": [
                {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
            ],
        }
        if self.usage is True:
            answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 10}
        elif self.usage:
            answer["usage"] = self.usage
        return JudgeResponse.json(answer)


def _used(body: dict[str, Any], word: str) -> bool:
    if word == "system":
        return any(one["role"] == "system" for one in body["messages"])
    if word in ("json_schema", "json_object"):
        return bool(body.get("response_format", {}).get("type") == word)
    return word in body


@dataclass
class Bench:
    """A judge's part with what it reports."""

    part: Judge
    events: list[Event] = field(default_factory=list)

    async def score(self, context: GroupContext) -> list[PartValue]:
        """As the model of rewards asks for it."""
        readings = [read(answer) for answer in context.answers]
        return await self.part.score(PartInput(context, readings, content_stems(context.query)))

    async def values(self, context: GroupContext) -> list[float]:
        return [value.value for value in await self.score(context)]

    async def cause(self, context: GroupContext) -> str:
        """Why it abstains."""
        try:
            scores = await self.score(context)
        except PartAbstained as why:
            return why.cause
        raise AssertionError(f"it gave {scores}")

    @property
    def spent(self) -> JudgeSpent:
        """The counts now."""
        return self.part._spend.now


@contextlib.asynccontextmanager
async def bench(
    url: str,
    home: Path | None = None,
    *,
    kept: dict[str, Any] | None = None,
    start: bool = False,
    seconds: float = 30.0,
    publish: Callable[[Event], object] | None = None,
    own: OwnServer | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A part of kind `judge`, open; `settings` are those of the file."""
    part = made(url, **settings)
    result = Bench(part)
    publish = publish or result.events.append
    part.place(
        PartEnvironment(home=home, seconds=seconds, publish=publish, own=own, kept=kept or {})
    )
    if start:
        await part.start()
    try:
        yield result
    finally:
        await part.close()


def made(url: str, *, where: Path | None = None, **options: Any) -> Judge:
    """The part as the file of the model makes it."""
    part = JUDGE.build("helpful", {"url": url, **options}, where or Path.cwd())
    assert isinstance(part, Judge)
    return part
