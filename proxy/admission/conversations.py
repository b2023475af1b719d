"""Finds the conversation a request goes on, when its client does not say: by its content.

Clients change what they send back: reasoning is dropped or renamed, ids of tool calls are
rewritten, arguments written anew, lists of blocks become strings, the system prompt changes its
form, a last message moves. So messages are compared in a normal form without all that, and a
request belongs to the conversation whose last prompt, or prompt and answer, it goes on from with an
assistant's turn. A prompt without an assistant's turn begins a conversation. One that was asked
before goes on from the newest conversation that leads to it and has not asked it (the same task
held once more), else it begins one: many equal prompts are many conversations, none a runaway.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from core.ids import hex_id
from proxy.dialects.agent_notes import without_asides
from proxy.http.json_limits import MOST_VALUES

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


# --- normal form --------------------------------------------------------------------------------

_EDGE = 4096
"""Characters looked at from both ends of a long text."""
_KEPT = 2048
"""Of these, characters other than white space that are kept."""
_BLANKS = bytes(code for code in range(128) if chr(code).isspace())


class _ReadBudget:
    """What may still be read of the arguments of a prompt's calls, in values; then as texts."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_VALUES

    def allows(self, arguments: str) -> bool:
        self.left -= arguments.count(",") + arguments.count("[") + arguments.count("{")
        return self.left >= 0


def normal(message: Mapping[str, Any], work: _ReadBudget | None = None) -> bytes:
    """What of a message stays the same when a client sends it again.

    The role, the text without white space (long ones by both ends) and without what an agent wrote
    into its user's message, and names and arguments of tool calls. Reasoning, ids, names of
    speakers and cache marks are no part of it.
    """
    text = content_text(message.get("content"))
    said = _text(without_asides(text) or text)
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return f"{message.get('role')}\0{said}".encode(errors="replace")
    work = work or _ReadBudget()
    told = [_call(call, work) for call in calls if isinstance(call, dict)]
    return "\0".join((str(message.get("role")), said, *told)).encode(errors="replace")


def _text(text: str) -> str:
    if len(text) <= 2 * _EDGE:
        if text.isascii():  # the same, at a fifth of the cost
            return text.encode("ascii").translate(None, _BLANKS).decode("ascii")
        return "".join(text.split())
    head, tail = "".join(text[:_EDGE].split()), "".join(text[-_EDGE:].split())
    return head[:_KEPT] + tail[-_KEPT:]


def _call(call: Mapping[str, Any], work: _ReadBudget) -> str:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, str) and work.allows(arguments):
        # What was cut off by max_tokens is compared as text.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            arguments = _decode(arguments) if arguments.strip() else {}
    try:
        told = _text(_encode(arguments or {}).decode())
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        told = ""
    return f"{function.get('name')}({told})"


SYSTEM = ("system", "developer")
"""Roles of messages that are no part of what is said."""


# --- conversations ------------------------------------------------------------------------------

MOST_CONVERSATIONS = 2048
KEYS = 12
"""Ways in which a conversation can be found again."""
TELLING = 40
"""Bytes an answer has at least that tells a conversation by itself."""


class ConversationTurn(msgspec.Struct, frozen=True):
    """Where a request stands."""

    session: str
    turn: int
    """From 1: which request of the session it is."""


class _Conversation(msgspec.Struct, eq=False):
    session: str
    turn: int = 0
    tail: int = 0
    """The chain of its newest prompt."""
    opening: int = 0
    keys: dict[int, bool] = {}
    """Ways in which it is found again; true for the whole of a prompt of its own."""


class _Prompt(msgspec.Struct, eq=False):
    """A prompt without its system messages, each message by its normal form."""

    messages: list[Mapping[str, Any]]
    parts: list[bytes]
    chain: list[int]
    """For each message the digest of all up to and with it."""
    tail: int
    """The last of the chain."""
    opening: int
    """Of the system prompt's beginning and the first user text."""


class Conversations:
    """The newest conversations of clients that do not mark theirs.

    Args:
        cap: Conversations that are remembered; the ones unused for longest go.
    """

    def __init__(self, cap: int = MOST_CONVERSATIONS) -> None:
        self._cap = cap
        self._talks: OrderedDict[str, _Conversation] = OrderedDict()
        self._by_key: dict[int, _Conversation] = {}

    def __len__(self) -> int:
        return len(self._talks)

    def match(
        self, messages: Sequence[Mapping[str, Any]], sender: str = "", trace: str = ""
    ) -> ConversationTurn:
        """The conversation a prompt goes on, or a new one; the prompt becomes its newest.

        Args:
            messages: In the form of chat completions.
            sender: Conversations of two senders are never the same.
            trace: A weak mark: counts for prompts with results of tools, among which it names the
                same system prompt's conversation.
        """
        prompt = _read(messages, sender)
        talk = self._find(prompt, trace) or self._new()
        self._talks.move_to_end(talk.session)
        talk.turn += 1
        talk.tail, talk.opening = prompt.tail, prompt.opening
        for key in _ways(prompt, trace):
            self._add(talk, key, whole=key == prompt.tail)
        return ConversationTurn(talk.session, talk.turn)

    def find(self, messages: Sequence[Mapping[str, Any]], sender: str = "", trace: str = "") -> str:
        """The session a prompt looks to be part of, empty for none; nothing is remembered."""
        talk = self._find(_read(messages, sender), trace)
        return talk.session if talk else ""

    def answered(self, session: str, message: Mapping[str, Any]) -> None:
        """What the newest prompt of a session was answered with; no matter for others."""
        talk = self._talks.get(session)
        if talk is not None:
            part = normal({**message, "role": "assistant"})
            self._add(talk, _after(talk.tail, part))
            if len(part) >= TELLING:
                self._add(talk, _digest("a", talk.opening, part))

    def _find(self, prompt: _Prompt, trace: str) -> _Conversation | None:
        messages, known = prompt.messages, self._by_key
        if not any([message.get("role") == "assistant" for message in messages]):
            return None
        asked = False
        for index in range(len(messages) - 1, -1, -1):
            talk = known.get(prompt.chain[index])
            if talk is None:
                continue
            if talk.keys.get(prompt.tail):
                asked = True  # the same once more is no turn of it; a newer one may lead here
                continue
            if messages[index].get("role") == "assistant" or (
                index + 1 < len(messages) and messages[index + 1].get("role") == "assistant"
            ):
                return talk
        if asked:
            return None
        answers = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
        for index in answers[:-9:-1]:
            if talk := known.get(_digest("a", prompt.opening, prompt.parts[index])):
                return talk
        if trace and any(message.get("role") == "tool" for message in messages):
            return known.get(_traced(prompt, trace))
        return None

    def _new(self) -> _Conversation:
        talk = _Conversation(f"c-{hex_id(5)}")
        self._talks[talk.session] = talk
        if len(self._talks) > self._cap:
            _, oldest = self._talks.popitem(last=False)
            for key in oldest.keys:
                self._drop(oldest, key)
        return talk

    def _add(self, talk: _Conversation, key: int, *, whole: bool = False) -> None:
        talk.keys[key] = talk.keys.pop(key, False) or whole
        self._by_key[key] = talk
        if len(talk.keys) > KEYS:
            oldest = next(iter(talk.keys))
            del talk.keys[oldest]
            self._drop(talk, oldest)

    def _drop(self, talk: _Conversation, key: int) -> None:
        if self._by_key.get(key) is talk:
            del self._by_key[key]


def _digest(*parts: str | bytes | int) -> int:
    """64 bits that only this process can compute: Python hashes texts with a secret of its own."""
    return hash(parts)


def _after(chain: int, part: bytes) -> int:
    return hash((chain, part))


def _read(messages: Sequence[Mapping[str, Any]], sender: str) -> _Prompt:
    said: list[Mapping[str, Any]] = []
    parts: list[bytes] = []
    chain: list[int] = []
    beginning: str | None = None
    first: bytes | None = None
    work = _ReadBudget()
    link = seed = _digest("sender", sender)
    for one in messages:
        role = one.get("role")
        if role in SYSTEM:
            if beginning is None:
                beginning = content_text(one.get("content"))[:400]
            continue
        part = normal(one, work)
        link = _after(link, part)
        if first is None and role == "user":
            first = part
        said.append(one)
        parts.append(part)
        chain.append(link)
    opening = _digest(seed, _squeezed(beginning or ""), first or b"")
    return _Prompt(said, parts, chain, link, opening)


@lru_cache(maxsize=256)
def _squeezed(beginning: str) -> bytes:
    """Of a system prompt; kept, since an application's is the same in all its requests."""
    return _text(beginning).encode(errors="replace")


def _traced(prompt: _Prompt, trace: str) -> int:
    return _digest("t", prompt.opening, trace)


def _ways(prompt: _Prompt, trace: str) -> Iterator[int]:
    """How the prompt's conversation is found again.

    A last user message that moves is no part of the next prompt; the one before it is then where
    the conversation goes on. After an assistant's turn that would not tell conversations apart
    that begin with the same examples.
    """
    if not prompt.chain:
        return
    roles = [message.get("role") for message in prompt.messages]
    if len(roles) > 1 and roles[-1] == "user" and roles[-2] != "assistant":
        yield prompt.chain[-2]
    yield prompt.chain[-1]
    if trace:
        yield _traced(prompt, trace)
