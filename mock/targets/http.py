"""An application at an address as a target: JSON in; JSON, text or an event stream out."""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from ajet_swarm.common.text import one_line
from core.openai.api import ApiAnswer, OpenAIApi
from mock.tally import RunCounters
from mock.targets.base import OUTPUT_CAP, ModelEndpoint, TargetBase
from mock.targets.openai import CONNECT_SECONDS, Answer, PatientCaller, Question, Unreachable, marks
from mock.targets.spec import Events, HttpSpec
from mock.targets.templates import NoAnswer, fill, fill_all, parse_json, text_at, values_at

_TURNS = {"session", "app_session", "messages"}
"""Template names by which an application can recognise a later question of a conversation."""


class HttpTarget:
    """The application's own address.

    Each request also has our headers (row, session, whether to train): an application that forwards
    them lets the proxy match the row directly.
    """

    in_session = True

    def __init__(
        self,
        spec: HttpSpec,
        endpoint: ModelEndpoint,
        connections: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        local = TargetBase(spec, endpoint)
        values = local.values(Question(query="", messages=(), sent_id=""))
        self.name = spec.label
        self._api = OpenAIApi(
            fill(spec.url, values, _escaped),
            connections=connections,
            connect_seconds=min(spec.timeout, CONNECT_SECONDS),
            body_limit=OUTPUT_CAP,
            transport=transport,
        )
        self._caller = PatientCaller(spec.url, hide=local.hide)
        self._spec = spec
        self._local = local
        self._sessions: dict[str, str] = {}
        """Our name of a conversation -> the application's."""

    async def end_conversation(self, session: str) -> None:
        """Forget the application's name of a conversation."""
        self._sessions.pop(session, None)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def ask(
        self,
        question: Question,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: RunCounters,
    ) -> Answer | None:
        self._local.warn_dropped_messages(question)
        if question.turn > 1 and not self._spec.used & _TURNS:
            names = ", ".join(f"{{{name}}}" for name in sorted(_TURNS))
            error = f"it takes one question only: its request has none of {names}"
            return self._local.failed(error, time.monotonic())
        try:
            answer = await self._caller.ask(
                lambda: self._call(question),
                lambda answer: self._text(answer.body, question),
                rest,
                patience,
                tally,
            )
        except Unreachable as error:
            what = self._local.hide(f"{error.what} ({self._spec.url})")
            raise Unreachable(what, str(self._spec.path)) from error
        if answer is None or not answer.error:
            return answer
        return Answer(error=self._local.hide(answer.error), seconds=answer.seconds)

    async def _call(self, question: Question) -> ApiAnswer:
        spec = self._spec
        session = self._sessions.get(question.session, "")
        values = self._local.values(question, app_session=session)
        headers = marks(question) | {
            name: fill(text, values, _header) for name, text in spec.headers.items()
        }
        body = None
        if spec.body is not None:
            filled = fill_all(spec.body, values)
            body = filled.encode() if isinstance(filled, str) else msgspec.json.encode(filled)
        return await self._api.call(
            spec.method,
            fill(spec.url, values, _escaped),
            body,
            seconds=spec.timeout,
            headers=headers,
            is_whole=_EndOfStream(spec.sse) if spec.sse is not None else None,
        )

    def _text(self, body: bytes, question: Question) -> str:
        spec = self._spec
        text = _decoded(body)
        if spec.sse is not None:
            return _events_text(text, spec.sse)
        if spec.app_session:
            sessions = values_at(parse_json(text, "the answer"), spec.app_session)
            if sessions and question.session:
                self._sessions[question.session] = str(sessions[0])
        if not spec.answer:
            answer = text.strip()
        else:
            answer = text_at(parse_json(text, "the answer"), spec.answer, spec.answer_text).strip()
        if not answer:
            raise NoAnswer("the answer is empty")
        return answer


def parse_events(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield name and data of each complete event in a stream."""
    text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n"):
        name, lines = "message", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                lines.append(value)
        if lines:
            yield name, "\n".join(lines)


class _EndOfStream:
    """Detector of the complete last event of a stream."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._searched = 0

    def __call__(self, data: bytearray) -> bool:
        """Search the data received since the last call."""
        done = self._events.done
        since, self._searched = max(0, self._searched - 256), len(data)
        if not done or done.encode() not in data[since:]:
            return False
        return any(
            _is_last_event(name, content, self._events)
            for name, content in parse_events(bytes(data))
        )


def _is_last_event(name: str, content: str, events: Events) -> bool:
    return events.done in (content.strip(), name)


def _events_text(text: str, events: Events) -> str:
    pieces: list[str] = []
    names: list[str] = []
    for name, content in parse_events(text.encode()):
        if _is_last_event(name, content, events):
            break
        names.append(name)
        if events.event and name != events.event:
            continue
        try:
            values: list[Any] = values_at(msgspec.json.decode(content), events.path)
        except msgspec.MsgspecError:
            raise NoAnswer(f"an event is not JSON: {one_line(content, 80)}") from None
        pieces += [value for value in values if isinstance(value, str)]
    answer = (pieces[-1] if events.last and pieces else "".join(pieces)).strip()
    if answer:
        return answer
    if not names:
        raise NoAnswer(f"the answer is not an event stream: {one_line(text, 80) or 'nothing'}")
    listed = ", ".join(dict.fromkeys(names))
    raise NoAnswer(f"no event has text at `{events.path_text}`; there were: {one_line(listed, 80)}")


def _decoded(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NoAnswer(f"the answer is not text: byte {error.start + 1}") from None
    if text.lstrip()[:15].lower().startswith(("<!doctype", "<html")):
        raise NoAnswer(f"the answer is a page: {one_line(text, 80)}")
    return text


def _escaped(text: str) -> str:
    return quote(text, safe="")


def _header(text: str) -> str:
    return quote(text, safe=" !#$%&'()*+,-./:;<=>?@[]^_`{|}~\"")
