"""Every captured exchange with a real vLLM, answered by the proxy: all that differs is listed here.

Compared are status, headers, keys and their order, values, and the order of events; pieces of one
text are joined. Ids are compared by their form, times not at all.
"""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.captured import NAMES, Exchange, exchange
from tests.conformance.forms import always, completion, events, settle
from tests.support.proxy.front import fronted
from tests.support.proxy.observed import observed
from tests.support.proxy.world import settings
from tests.support.wire import Answer, wire

GUIDE = (Path(__file__).parents[2] / "docs" / "contributing" / "conformance.md").read_text(
    encoding="utf-8"
)
LIVE = ("chat_stream", "chat_stream_usage", "tool2_stream")
"""Streams that are compared as one candidate's tokens arrive, too."""
STREAMS = tuple(name for name in NAMES if "event-stream" in str(exchange(name).headers))


@dataclass(frozen=True)
class Difference:
    """Something that differs from vLLM on purpose."""

    row: str
    """Number of the row in docs/contributing/conformance.md."""
    phrase: str
    """Text of that row."""
    at: str
    """Expression for the place in the answer."""
    captures: tuple[str, ...]
    """Where it shows."""


DIFFERENCES = (
    Difference(
        "12",
        "`system_fingerprint` names this program",
        r".*\.system_fingerprint",
        (
            *("chat", "chat_length", "chat_logprobs", "chat_stream", "chat_stream_usage"),
            *("compl", "compl_stream", "tool", "tool_stream", "tool2_stream"),
        ),
    ),
    Difference(
        "3", "its first event is an empty text", r"\[[01]\]\.choices\[0\]\.text", ("compl_stream",)
    ),
    Difference(
        "36",
        "`max_output_tokens` is what was asked for",
        r".*\.max_output_tokens",
        ("resp", "resp_stream", "resp_tool_stream"),
    ),
    Difference(
        "39",
        "`input_tokens` of `message_start` is an estimate",
        r"\[0\]\.message\.usage\.input_tokens",
        ("msg_stream", "msg_tool_stream"),
    ),
    Difference("42", "`root` is the name, never a path", r"\.data\[0\]\.root", ("models",)),
    Difference("51", "characters of the messages alone", r"\.error\.message", ("e_context",)),
)

NOT_SENT = {"server"}
"""Headers of vLLM that the proxy does not send, see row 1."""
ADDED = {"cache-control", "x-accel-buffering"}
"""Headers of a stream that row 6 names."""
_TEXTS = frozenset(
    ("content", "reasoning", "text", "delta", "thinking", "partial_json", "arguments")
)
_TIMES = frozenset({"created", "created_at"})
_CONSTANT = frozenset(
    ("object", "type", "role", "finish_reason", "stop_reason", "status", "index")
) | {"output_index", "content_index"}
"""Fields in which two pieces of one text are equal."""
_ID = re.compile(r"[0-9a-f]{16,}")

GREETING = ("\n\nHello there! How can I help you today?", "\nThe user wants a greeting.\n")


def call(city: str, number: str) -> dict[str, Any]:
    """A tool call as a vLLM behind the proxy gives it."""
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"id": f"chatcmpl-tool-{number * 16}", "type": "function", "function": function}


def captured_answer(name: str) -> dict[str, Any]:
    """The model's output in a capture, in the form of an upstream's answer."""
    calls: list[dict[str, Any]] = []
    logprobs = None
    content, reasoning, finish, tokens = *GREETING, "stop", (17, 23, 8)
    if name.startswith("compl"):
        content, reasoning, finish, tokens = "TheTheThe user", "", "length", (1, 4, 0)
    elif name == "chat_length":
        content, reasoning, finish, tokens = "", "\nThe user wants", "length", (17, 5, 4)
    elif name == "chat_logprobs":
        content, reasoning, finish, tokens = "", "\nThe", "length", (17, 3, 2)
        logprobs = json.loads(exchange(name).body)["choices"][0]["logprobs"]
    elif name == "tool2_stream":
        content, reasoning, tokens = "\n\nLet me check both.\n", "\nTwo calls.\n", (41, 59, 5)
        calls = [call("Paris", "a"), call("Rome", "b")]
    elif "tool" in name:
        content, reasoning, tokens = "\n\n", "\nI need the tool.\n", (42, 33, 7)
        content = "" if name == "tool" else content
        calls = [call("Paris", "a")]
    result = completion(content or None, reasoning=reasoning or None, finish=finish, tokens=tokens)
    choice = result["choices"][0]
    choice["logprobs"] = logprobs
    if calls:
        choice["message"]["tool_calls"], choice["finish_reason"] = calls, "tool_calls"
    return result


@contextlib.asynccontextmanager
async def served_as(name: str, home: Path, answer: str = "best") -> AsyncIterator[str]:
    """A proxy in front of what the capture's vLLM had: a model, a window, perhaps a key."""
    proxy = {"served_model_name": "tiny", "answer": answer}
    if name in ("e_context", "models"):  # an upstream has to report its window
        async with observed(home, proxy=proxy) as o:
            yield str(o.client.base_url).rstrip("/")
        return
    if name == "auth_none":
        proxy["api_key"] = "a-key"
    async with fronted(home, configured=settings(proxy=proxy)) as f:
        f.world.swarm.answer = always(captured_answer(name))
        f.world.swarm.streaming = "tokens"
        if name == "msg_count":  # the proxy has no tokenizer, it remembers recent answers
            await sent(f.url, exchange("msg"))
        yield f.url
        await settle(f)


async def sent(url: str, one: Exchange) -> Answer:
    """The answer to the request of a capture."""
    headers = {
        key.replace("-", "_"): value
        for key, value in one.request_headers.items()
        if key != "content-type"
    }
    async with wire(url) as line:
        await line.ask(one.method, one.path, one.request, **headers)
        return await line.answer()


@pytest.mark.parametrize(
    ("name", "answer"), [*((name, "best") for name in NAMES), *((name, "live") for name in LIVE)]
)
async def test_a_captured_request_gets_an_equivalent_answer(
    tmp_path: Path, name: str, answer: str
) -> None:
    theirs = exchange(name)
    async with served_as(name, tmp_path, answer) as url:
        ours = await sent(url, theirs)
    assert ours.status == theirs.status
    added = ours.headers.keys() - theirs.headers.keys() - {"x-ajet-weights"}
    own = {"vary"} if name == "auth_none" else set()  # row 57
    assert added == (ADDED if name in STREAMS else own)
    lost = theirs.headers.keys() - ours.headers.keys() - NOT_SENT
    assert lost == ({"x-request-id"} if name == "auth_none" else set())  # row 69
    assert ours.headers.get("content-type") == theirs.headers.get("content-type")
    result = list(differing("", read(name, theirs.body), read(name, ours.body)))
    known = {difference.at for difference in DIFFERENCES if name in difference.captures}
    assert not [found for found in result if not any(re.fullmatch(at, found[0]) for at in known)]
    known_differing = {at for at in known for place, *_ in result if re.fullmatch(at, place)}
    assert known_differing == known, "listed, and does not differ any more"


async def test_the_context_length_message_differs_in_one_number(tmp_path: Path) -> None:
    theirs = json.loads(exchange("e_context").body)["error"]["message"]
    async with served_as("e_context", tmp_path) as url:
        ours = (await sent(url, exchange("e_context"))).json()["error"]["message"]
    assert ours == theirs.replace("100050", "100000")


def test_all_captures_exist() -> None:
    assert len(NAMES) == 25
    assert {name for difference in DIFFERENCES for name in difference.captures} <= set(NAMES)
    assert len(STREAMS) == 9


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.at)
def test_each_difference_is_documented(difference: Difference) -> None:
    (row,) = re.findall(rf"^\| {difference.row} \|.*$", GUIDE, re.MULTILINE)
    assert difference.phrase in row


def test_the_headers_that_differ_are_documented() -> None:
    rows = {number: line for number, line in re.findall(r"^\| (\d+) \|(.*)$", GUIDE, re.MULTILINE)}
    streams = ADDED | {"x-ajet-weights"}
    for row, names in (("1", NOT_SENT), ("6", streams), ("57", {"vary"}), ("69", {"x-request-id"})):
        for name in names:
            assert f"`{name}`" in rows[row].lower(), (row, name)


# --- comparing ----------------------------------------------------------------------------------


def read(name: str, body: bytes) -> Any:
    """A body as values that can be compared: of a stream its events, pieces of one text joined."""
    if name not in STREAMS:
        return plain(json.loads(body)) if body else body
    values: list[Any] = []
    for kind, data in events(body):
        event = {"event": kind, "data": plain(data)}
        if values and json.dumps(shape(values[-1])) == json.dumps(shape(event)):
            event = joined(values.pop(), event)
        values.append(event)
    return [value["data"] for value in values]


def shape(value: Any, key: str = "") -> Any:
    """A value without what differs between two pieces: keys in their order, kinds, nulls."""
    if isinstance(value, dict):
        return {name: shape(field, name) for name, field in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    if value is None or key in _CONSTANT:
        return value
    return type(value).__name__


def plain(value: Any, key: str = "") -> Any:
    """A value without times and without the digits of ids."""
    if isinstance(value, dict):
        return {name: plain(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return _ID.sub("#", value)
    return key if key in _TIMES or key == "sequence_number" else value


def joined(one: Any, other: Any, key: str = "") -> Any:
    """Two events of one shape as one: texts put together, of all else the later."""
    if isinstance(one, dict):
        return {name: joined(one[name], other[name], name) for name in one}
    if isinstance(one, list):
        return [joined(first, second) for first, second in zip(one, other, strict=True)]
    return one + other if isinstance(one, str) and key in _TEXTS else other


def differing(place: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """Place and both values of all that differs; of objects also the order of their keys."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and list(theirs) == list(ours):
        for name in theirs:
            yield from differing(f"{place}.{name}", theirs[name], ours[name])
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for at, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differing(f"{place}[{at}]", one, other)
    elif theirs != ours or type(theirs) is not type(ours):
        yield place, theirs, ours
