"""The OpenAPI document: valid, with each field that a dialect reads."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.dialects.chat.completions import COMPLETIONS
from proxy.dialects.chat.request import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.request import Dialect
from proxy.dialects.responses import RESPONSES
from tests.support.proxy.front import BODIES, fronted


class Recording(dict[str, Any]):
    """A body that records which of its fields are looked at."""

    def __init__(self, *pairs: Any) -> None:
        super().__init__(*pairs)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


async def test_the_document_is_valid(tmp_path: Path) -> None:
    import schemathesis  # a quarter of a second, and each worker collects all tests

    async with fronted(tmp_path) as f:
        document = (await f.client.get("/openapi.json")).json()
        schemathesis.openapi.from_dict(document).validate()
        assert document["info"]["title"] == "ajet-console"
        for path in ("/docs", "/redoc"):
            assert (await f.client.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("path", "dialect"),
    zip(BODIES, (CHAT, COMPLETIONS, RESPONSES, MESSAGES), strict=True),
    ids=BODIES,
)
async def test_the_document_has_each_field_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, dialect: Dialect
) -> None:
    seen: list[Recording] = []

    def decode(data: bytes, content_type: str) -> Recording:
        seen.append(Recording(msgspec.json.decode(data)))
        return seen[-1]

    def convert(value: Any, shape: Any, **more: Any) -> Any:
        if isinstance(value, Recording) and isinstance(shape, type):
            value.names |= set(getattr(shape, "__struct_encode_fields__", ()))
        return original(value, shape, **more)

    original = msgspec.convert
    monkeypatch.setattr(msgspec, "convert", convert)
    monkeypatch.setattr("proxy.dialects.request.decode", decode)
    more = {"seed": 1}  # or a chat has common fields only, and skips most checks
    dialect.read(msgspec.json.encode({**BODIES[path], **more}), {}, "")
    async with fronted(tmp_path) as f:
        document = (await f.client.get("/openapi.json")).json()
    content = document["paths"][path]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
    fields = document["components"]["schemas"][schema]["properties"].keys()
    assert len(seen[0].names) > 15
    assert seen[0].names - fields == set()
