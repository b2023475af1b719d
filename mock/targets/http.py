"""An application behind an address as a target: JSON in, JSON, text or a stream of events out."""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from ajet_swarm.common.text import one_line
from mock.tally import Tally
from mock.targets.base import OUTPUT_CAP, Local, Setting
from mock.targets.openai import Answer, Asker, Question, Unreachable, marks
from mock.targets.spec import Events, HttpSpec
from mock.targets.templates import NoAnswer, at_path, decoded, fill, fill_all, text_at

_TURNS = {"session", "app_session", "messages"}
"""Names by which an application may know that a question is not the first one."""


class Http(Asker):
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
        super().__init__(
            fill(spec.url, values, _escaped),
            timeout=spec.timeout,
            connections=connections,
            transport=transport,
            name=spec.told,
        )
        self.url = spec.url
        self._spec = spec
        self._local = local
        self._sessions: dict[str, str] = {}
        """Our name of a conversation -> the application's."""

    async def over(self, session: str) -> None:
        """Forget the application's name of a conversation."""
        self._sessions.pop(session, None)

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
            answer = await super().ask(question, rest, patience, tally)
        except Unreachable as error:
            what = self._local.hide(f"{error.what} ({self.url})")
            raise Unreachable(what, str(self._spec.path)) from error
        if answer is None or not answer.error:
            return answer
        return Answer(error=self._local.hide(answer.error), seconds=answer.seconds)

    async def _post(self, question: Question) -> httpx.Response:
        spec = self._spec
        known = self._sessions.get(question.session, "")
        values = self._local.values(question, app_session=known)
        headers = marks(question) | {
            name: fill(text, values, _header) for name, text in spec.headers.items()
        }
        body = None
        if spec.body is not None:
            told = fill_all(spec.body, values)
            body = told.encode() if isinstance(told, str) else msgspec.json.encode(told)
        request = self._http.build_request(
            spec.method,
            fill(spec.url, values, _escaped),
            content=body,
            headers=headers,
        )
        if body is None:
            request.headers.pop("content-type", None)
        response = await self._http.send(request, stream=True)
        try:
            data = await self._receive(response)
        finally:
            await response.aclose()
        return httpx.Response(response.status_code, headers=_plain(response), content=data)

    async def _receive(self, response: httpx.Response) -> bytes:
        """All of the answer; of a stream of events up to the one that ends it."""
        data = bytearray()
        events = self._spec.sse if response.is_success else None
        async for piece in response.aiter_bytes():
            at = max(0, len(data) - len(piece) - 256)
            data += piece
            if len(data) > OUTPUT_CAP:
                raise httpx.RequestError(f"the answer is longer than {OUTPUT_CAP >> 20} MB")
            if events is not None and events.done.encode() in data[at:] and _over(data, events):
                break
        return bytes(data)

    def _text(self, response: httpx.Response, question: Question) -> str:
        spec = self._spec
        text = _decoded(response.content)
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


def _over(data: bytearray, events: Events) -> bool:
    """Whether the event that ends a stream is there as a whole."""
    ends = any(_ends(name, told, events) for name, told in parsed(bytes(data)))
    return ends and bool(events.done)


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


def _plain(response: httpx.Response) -> dict[str, str]:
    """The headers that are read later; not those of a coding that is undone already."""
    kept = ("retry-after", "content-type")
    return {name: response.headers[name] for name in kept if name in response.headers}
