"""An application behind an address as a target: JSON in, JSON, text or a stream of events out."""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from ajet_swarm.common.text import one_line
from core.openai.api import ApiAnswer, OpenAIApi
from mock.tally import Tally
from mock.targets.base import OUTPUT_CAP, Local, Setting
from mock.targets.openai import CONNECT_SECONDS, Answer, PatientCaller, Question, Unreachable, marks
from mock.targets.spec import Events, HttpSpec
from mock.targets.templates import NoAnswer, at_path, decoded, fill, fill_all, text_at

_TURNS = {"session", "app_session", "messages"}
"""Names by which an application may know that a question is not the first one."""


class Http:
    """The application's own address.

    Each request also has our headers (row, session, whether to train): an application that hands
    them on spares the search for the row.
    """

    in_session = True

    def __init__(
        self,
        spec: HttpSpec,
        setting: Setting,
        connections: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        local = Local(spec, setting)
        values = local.values(Question(query="", messages=(), sent_id=""))
        self.name = spec.told
        self._api = OpenAIApi(
            fill(spec.url, values, _escaped),
            connections=connections,
            connect_seconds=min(spec.timeout, CONNECT_SECONDS),
            body_limit=OUTPUT_CAP,
            transport=transport,
        )
        self._caller = PatientCaller(spec.url)
        self._spec = spec
        self._local = local
        self._sessions: dict[str, str] = {}
        """Our name of a conversation -> the application's."""

    async def over(self, session: str) -> None:
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
        tally: Tally,
    ) -> Answer | None:
        """See `Target.ask`."""
        self._local.lost_words(question)
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
        known = self._sessions.get(question.session, "")
        values = self._local.values(question, app_session=known)
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
            return _joined(text, spec.sse)
        if spec.app_session:
            told = at_path(decoded(text, "the answer"), spec.app_session)
            if told and question.session:
                self._sessions[question.session] = str(told[0])
        if not spec.answer:
            found = text.strip()
        else:
            found = text_at(decoded(text, "the answer"), spec.answer, spec.told).strip()
        if not found:
            raise NoAnswer("the answer is empty")
        return found


def parsed(data: bytes) -> Iterator[tuple[str, str]]:
    """Name and data of each whole event in a stream."""
    text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n"):
        name, told = "message", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                told.append(value)
        if told:
            yield name, "\n".join(told)


class _EndOfStream:
    """Whether the event that ends a stream is there as a whole."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._searched = 0

    def __call__(self, data: bytearray) -> bool:
        """Search what came since the last call."""
        done = self._events.done
        since, self._searched = max(0, self._searched - 256), len(data)
        if not done or done.encode() not in data[since:]:
            return False
        return any(_ends(name, told, self._events) for name, told in parsed(bytes(data)))


def _ends(name: str, told: str, events: Events) -> bool:
    return events.done in (told.strip(), name)


def _joined(text: str, events: Events) -> str:
    pieces: list[str] = []
    seen: list[str] = []
    for name, told in parsed(text.encode()):
        if _ends(name, told, events):
            break
        seen.append(name)
        if events.event and name != events.event:
            continue
        try:
            found: list[Any] = at_path(msgspec.json.decode(told), events.path)
        except msgspec.MsgspecError:
            raise NoAnswer(f"an event is no JSON: {one_line(told, 80)}") from None
        pieces += [one for one in found if isinstance(one, str)]
    answer = (pieces[-1] if events.last and pieces else "".join(pieces)).strip()
    if answer:
        return answer
    if not seen:
        raise NoAnswer(f"the answer is no stream of events: {one_line(text, 80) or 'nothing'}")
    names = ", ".join(dict.fromkeys(seen))
    raise NoAnswer(f"no event has text at `{events.told}`; there were: {one_line(names, 80)}")


def _decoded(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NoAnswer(f"the answer is no text: byte {error.start + 1}") from None
    if text.lstrip()[:15].lower().startswith(("<!doctype", "<html")):
        raise NoAnswer(f"the answer is a page: {one_line(text, 80)}")
    return text


def _escaped(text: str) -> str:
    return quote(text, safe="")


def _header(text: str) -> str:
    return quote(text, safe=" !#$%&'()*+,-./:;<=>?@[]^_`{|}~\"")
