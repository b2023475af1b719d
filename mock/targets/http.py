"""An application at an address as a target: JSON in; JSON, text or an event stream out."""

from urllib.parse import quote

import httpx
import msgspec

from ajet_swarm.common.text import one_line
from core.openai.api import ApiAnswer, OpenAIApi
from mock.targets.answers import NoAnswer, parse_json
from mock.targets.base import OUTPUT_CAP, ModelEndpoint, TargetBase
from mock.targets.question import (
    CONNECT_SECONDS,
    NOTHING,
    Answer,
    Patience,
    PatientCaller,
    Question,
    Unreachable,
    marks,
)
from mock.targets.spec import HttpSpec
from mock.targets.templates import fill, fill_all

_TURNS = {"session", "app_session", "messages"}
"""Template names by which an application can recognise a later question of a conversation."""


class HttpTarget(TargetBase):
    """The application's own address.

    Each request also has our headers (row, session, whether to train): an application that forwards
    them lets the proxy match the row directly.
    """

    def __init__(
        self,
        spec: HttpSpec,
        endpoint: ModelEndpoint,
        connections: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(spec, endpoint)
        values = self.values(NOTHING)
        self._api = OpenAIApi(
            fill(spec.url, values, _escaped),
            connections=connections,
            connect_seconds=min(spec.timeout, CONNECT_SECONDS),
            body_limit=OUTPUT_CAP,
            transport=transport,
        )
        self._caller = PatientCaller(spec.url, hide=self.hide)
        self._spec = spec
        self._sessions: dict[str, str] = {}
        """Our name of a conversation -> the application's."""

    async def end_conversation(self, session: str) -> None:
        """Forget the application's name of a conversation."""
        self._sessions.pop(session, None)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def ask(self, question: Question, patience: Patience) -> Answer | None:
        self.warn_dropped_messages(question)
        if question.turn > 1 and not self._used & _TURNS:
            names = ", ".join(f"{{{name}}}" for name in sorted(_TURNS))
            error = f"it takes one question only: its request has none of {names}"
            return Answer(error=error)
        try:
            answer = await self._caller.ask(
                lambda: self._call(question),
                lambda answer: self._text(answer.body, question),
                patience,
            )
        except Unreachable as error:
            what = self.hide(f"{error.what} ({self._spec.url})")
            raise Unreachable(what, str(self._spec.path)) from error
        if answer is None or not answer.error:
            return answer
        return Answer(error=self.hide(answer.error), seconds=answer.seconds)

    async def _call(self, question: Question) -> ApiAnswer:
        spec = self._spec
        session = self._sessions.get(question.session, "")
        values = self.values(question, app_session=session)
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
            is_whole=spec.sse.is_whole if spec.sse is not None else None,
        )

    def _text(self, body: bytes, question: Question) -> str:
        spec = self._spec
        text = _decoded(body)
        if spec.sse is not None:
            return spec.sse.find(text)
        if spec.app_session:
            sessions = spec.app_session.values(parse_json(text, "the answer"))
            if sessions and question.session:
                self._sessions[question.session] = str(sessions[0])
        if not spec.answer:
            answer = text.strip()
        else:
            answer = spec.answer.text_in(parse_json(text, "the answer")).strip()
        if not answer:
            raise NoAnswer("the answer is empty")
        return answer


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
