"""The fake vLLM, or any server with the same API, as a target."""

import httpx
import msgspec

from core.openai.api import ApiAnswer, OpenAIApi
from mock.targets.base import ModelEndpoint, TargetBase
from mock.targets.dialects import DIALECTS, read
from mock.targets.question import (
    CONNECT_SECONDS,
    NOTHING,
    Answer,
    Patience,
    PatientCaller,
    Question,
    marks,
)
from mock.targets.spec import FakeSpec
from mock.targets.templates import fill


class FakeTarget(TargetBase):
    """Sends each question as one request in the API of its dialect."""

    in_session = False

    def __init__(
        self,
        spec: FakeSpec,
        endpoint: ModelEndpoint,
        connections: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(spec, endpoint)
        self._spec = spec
        self._form = DIALECTS[spec.dialect]
        values = self.values(NOTHING)
        self._model = str(values["model"])
        own = not spec.base_url  # never send our key and certificate to another server
        self._api = OpenAIApi(
            spec.base_url or endpoint.base_url,
            key=endpoint.api_key if own else "",
            headers={name: fill(text, values) for name, text in spec.headers.items()},
            connections=connections,
            connect_seconds=min(spec.timeout, CONNECT_SECONDS),
            cert=endpoint.cert if own else "",
            transport=transport,
        )
        self._caller = PatientCaller(self._api.base_url + self._form.path)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def ask(self, question: Question, patience: Patience) -> Answer | None:
        body = self._form.body(self._model, question.messages, question.tools) | self._spec.params
        data, headers = msgspec.json.encode(body), marks(question)
        return await self._caller.ask(
            lambda: self._api.call(
                "POST", self._form.path, data, seconds=self._spec.timeout, headers=headers
            ),
            self._text,
            patience,
        )

    def _text(self, answer: ApiAnswer) -> str:
        text = read(self._form, answer.body)
        if text is None:
            raise ValueError(f"the answer is not a {self._form.answer_name}")
        return text
