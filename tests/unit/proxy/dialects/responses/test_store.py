"""Items that clients refer to by id."""

import json

from core.dialects.request import public_answer
from core.dialects.responses.input import ResponseStore
from proxy.dialects.responses import responses


def test_items_are_stored_up_to_the_limit() -> None:
    store = ResponseStore(max_bytes=100)
    for name in ("a", "b", "c"):
        store.put({"id": name, "text": "x" * 20})
    assert store.get("a") is None  # 3 x 36 bytes are too many
    assert store.get("b") == {"id": "b", "text": "x" * 20}
    store.put({"id": "d", "text": "x" * 20})
    assert store.get("c") is None  # b was asked for later
    assert store.get("b") is not None
    assert store.get(None) is None


def test_nothing_is_stored_if_the_client_declines() -> None:
    stored = ResponseStore()
    dialect = responses(stored)
    one = public_answer({"choices": [{"message": {"content": "x"}}]})
    for store in (False, True):
        body = json.dumps({"input": "x", "store": store}).encode()
        request = dialect.read(body, {"content-type": "application/json"}, "")
        (item,) = json.loads(dialect.writer(request, "tiny", 1).body([one]))["output"]
        assert (stored.get(item["id"]) is not None) == store
