"""Sessions of requests: the conversation that a request continues, and the limits of a session.

Conversations are found by their content, for clients that do not name their session. Clients change
the messages that they send back: reasoning is dropped or renamed, ids of tool calls are rewritten,
arguments are re-encoded, lists of blocks become strings, the system prompt changes its form, the
last message moves. So messages are compared in a normal form without all these, and a request
belongs to the conversation whose last prompt, or prompt and answer, it extends by an assistant's
turn. A prompt without an assistant's turn starts a conversation. A prompt that was sent before
continues the newest matching conversation that has not sent it yet (the same task once more); if
there is none, it starts a conversation. So many equal prompts are many conversations, and none of
them exceeds the limits of a session.
"""

import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from ajet_swarm.runtime import SYSTEM, Chance
from core.settings import ProxySettings
from proxy.dialects.client_marks import without_asides
from proxy.dialects.request import MOST_VALUES

MINUTE = 60.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All bounds of admission. A number of 0 is no bound; times are in seconds."""

    queue: int
    """Requests that wait for their episodes; a further one takes the place of another, if any."""
    groups: int
    """Groups of one server that hold episodes."""
    session_open: int
    """Open requests of one session."""
    session_minute: int
    """Requests of one session in a minute."""
    names: int = 4096
    """Sessions whose requests are counted."""
    conversations: int = 2048
    """Conversations that are found again by their content."""
    replay_window: float = 30.0
    """How long an answer is kept for a client that did not receive it."""
    replays: int = 1024
    replay_bytes: int = 16 << 20
    alerts: int = 20
    """Sessions over their limit that have an alert."""
    alert_time: float = 60.0
    """How long such an alert stays after the last refusal."""
    leave_grace: float = 0.4
    """How long a group stays open after its client has disconnected, so that a retry can join."""
    down_grace: float = 10.0
    """How long a server may be down before requests that wait for it are refused."""
    console_grace: float = 10.0
    """How long a detached console still counts as attached."""
    recover: float = 1.0
    """How long recovery may delay the start; it then continues in the background, and claims wait
    for it."""
    last_ends: float = 5.0
    """How long sealed groups may send their rewards after a drain."""

    @classmethod
    def of(cls, settings: ProxySettings, **others: float) -> "Limits":
        """Return the limits by the settings; `others` are those that no setting has."""
        return cls(
            queue=settings.queue_limit,
            groups=settings.max_groups,
            session_open=settings.session_cap,
            session_minute=settings.session_calls,
            **others,  # type: ignore[arg-type]
        )


class LimitExceeded(Exception):
    """A session has reached a limit.

    Attributes:
        limit: The limit in words, such as "8 open requests".
        retry_after: Whole seconds after which the next request is accepted.
    """

    def __init__(self, limit: str, retry_after: int) -> None:
        super().__init__(limit)
        self.limit = limit
        self.retry_after = retry_after


class RequestCount(Counter[tuple["RequestLimits", str]]):
    """Open groups of one request by limits and name: each of its prompts makes a group."""


class _Record(msgspec.Struct, eq=False, gc=False):
    calls: deque[float]
    """Times of the newest requests, at most as many as are allowed per minute."""
    open: int = 0
    turn: int = 0
    tools: bool = False


class RequestLimits:
    """Counters of the requests by name of a session: open ones, those of the last minute.

    Args:
        max_open: Requests open at once; 0 is no limit.
        calls_per_minute: Requests per minute; 0 is no limit.
        clock: Monotonic clock in seconds.
        max_names: Number of names that are remembered.
    """

    def __init__(
        self,
        max_open: int,
        calls_per_minute: int,
        clock: Callable[[], float],
        max_names: int = 4096,
    ) -> None:
        self._max_open = max_open
        self._calls_per_minute = calls_per_minute
        self._clock = clock
        self._max_names = max_names
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def open(
        self,
        name: str,
        count: RequestCount | None = None,
        *,
        helper: bool = False,
        tools: bool = False,
    ) -> int:
        """Count one more open request; call `close` when it ends.

        Args:
            name: The session.
            count: The request, which counts once, however many groups it makes; None for one group.
            helper: The request is a helper call, not a turn of the conversation.
            tools: The request offers tools, so the session is an agent's.

        Returns:
            Number of the turn within the session, from 1; 0 for a helper call.

        Raises:
            LimitExceeded: A limit is reached; the request is not counted.
        """
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = _Record(deque(maxlen=self._calls_per_minute))
        self._records.move_to_end(name)
        groups = 0 if count is None else count[self, name]
        if not groups:
            now = self._clock()
            if self._max_open and record.open >= self._max_open:
                raise LimitExceeded(f"{self._max_open} open requests", 2)
            if record.calls and len(record.calls) == self._calls_per_minute:
                wait = record.calls[0] + MINUTE - now
                if wait > 0:
                    limit = f"{self._calls_per_minute} requests a minute"
                    raise LimitExceeded(limit, int(wait) + 1)
            record.calls.append(now)
            record.open += 1
            record.tools = record.tools or tools
            record.turn += not helper
            while len(self._records) > self._max_names:  # forget those without open requests
                idle = (known for known, kept in self._records.items() if not kept.open)
                if (oldest := next(idle, None)) is None:
                    break
                del self._records[oldest]
        if count is not None:
            count[self, name] = groups + 1
        return 0 if helper else record.turn

    def close(self, name: str, count: RequestCount | None = None) -> None:
        """Record that a request has ended, or one of its groups."""
        if count is not None:
            count[self, name] -= 1
            if count[self, name]:
                return
        if (record := self._records.get(name)) is not None:
            record.open -= 1

    def has_tools(self, name: str) -> bool:
        """Return whether the session has sent requests with tools."""
        record = self._records.get(name)
        return record is not None and record.tools


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


# --- normal form --------------------------------------------------------------------------------

_EDGE = 4096
"""Characters at each end of a long text that are compared."""
_MOST = 2048
"""Bytes of each end that remain after white space is removed, at most."""
_BLANKS = bytes(code for code in range(128) if chr(code).isspace())


class _ReadBudget:
    """Number of JSON values that may still be decoded in the arguments of a prompt's tool calls."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_VALUES

    def allows(self, arguments: str) -> bool:
        self.left -= arguments.count(",") + arguments.count("[") + arguments.count("{")
        return self.left >= 0


def normal_form(message: Mapping[str, Any], budget: _ReadBudget | None = None) -> bytes:
    """Return the normal form of a message, which is the same when a client sends it again.

    It consists of the role, the text without white space and agents' notes (both ends of a long
    one), and the names and arguments of tool calls. It leaves out reasoning, ids, names of speakers
    and cache marks.

    Args:
        message: A chat message.
        budget: Number of JSON values that may be decoded, for all messages of a prompt; None for a
            new one.
    """
    content = message.get("content")
    text = content if isinstance(content, str) else content_text(content)
    text_form = _text(without_asides(text) or text)
    role = str(message.get("role")).encode(errors="replace")
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return role + b"\0" + text_form
    budget = budget or _ReadBudget()
    calls_form = [_call(call, budget) for call in calls if isinstance(call, dict)]
    return b"\0".join((role, text_form, *calls_form))


def _text(text: str) -> bytes:
    """Return a text, or both ends of a long one, without white space."""
    if len(text) <= 2 * _EDGE:
        return _without_blanks(text)
    return _without_blanks(text[:_EDGE])[:_MOST] + _without_blanks(text[-_EDGE:])[-_MOST:]


def _without_blanks(text: str) -> bytes:
    if text.isascii():  # same result in a fifth of the time
        return text.encode("ascii").translate(None, _BLANKS)
    return "".join(text.split()).encode(errors="replace")


def _call(call: Mapping[str, Any], budget: _ReadBudget) -> bytes:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, str) and budget.allows(arguments):
        # Arguments that max_tokens cut off are compared as text.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            arguments = _decode(arguments) if arguments.strip() else {}
    try:
        arguments_form = _text(_encode(arguments or {}).decode())
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        arguments_form = b""
    name = str(function.get("name")).encode(errors="replace")
    return b"%b(%b)" % (name, arguments_form)


SYSTEM_ROLES = ("system", "developer")
"""Roles of messages that do not count as turns of a conversation."""


# --- conversations ------------------------------------------------------------------------------

MAX_CONVERSATIONS = 2048
MAX_KEYS = 12
"""Digests by which one conversation is found again."""
MIN_DISTINCT_BYTES = 40
"""Minimum size of an answer's normal form that identifies a conversation by itself."""


class ConversationTurn(msgspec.Struct, frozen=True):
    """Position of a request within a session."""

    session: str
    turn: int
    """Number of the request within the session, from 1."""


class _Conversation(msgspec.Struct, eq=False, gc=False):
    session: str
    turn: int = 0
    tail: int = 0
    """Digest of its newest prompt."""
    opening: int = 0
    keys: dict[int, bool] = {}
    """Digests by which it is found again; true for that of a complete prompt."""


class _Prompt(msgspec.Struct, eq=False, gc=False):
    """A prompt without its system messages, with the normal form of each message."""

    messages: list[Mapping[str, Any]]
    parts: list[bytes]
    chain: list[int]
    """For each message, the digest of all messages up to and including it."""
    tail: int
    """The last item of `chain`."""
    opening: int
    """Digest of the start of the system prompt and the first user message."""


class Conversations:
    """The recent conversations of clients that do not name their session.

    Args:
        chance: For the names of conversations.
        cap: Number of conversations that are remembered; the least recently used are dropped.
    """

    def __init__(self, chance: Chance = SYSTEM.chance, cap: int = MAX_CONVERSATIONS) -> None:
        self._chance = chance
        self._cap = cap
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()
        self._by_key: dict[int, _Conversation] = {}

    def __len__(self) -> int:
        return len(self._conversations)

    def match(
        self, messages: Sequence[Mapping[str, Any]], sender: str = "", trace: str = ""
    ) -> ConversationTurn:
        """Add a prompt to the conversation that it continues, or to a new one.

        Args:
            messages: The prompt, in the form of chat completions.
            sender: Credentials of the sender; different senders never share a conversation.
            trace: Trace id of the request. It is only used for prompts with tool results, and only
                matches prompts with the same system prompt and first user message.
        """
        prompt = _parse_prompt(messages, sender)
        conversation = self._find(prompt, trace) or self._new()
        self._conversations.move_to_end(conversation.session)
        conversation.turn += 1
        conversation.tail, conversation.opening = prompt.tail, prompt.opening
        for key in _keys_of(prompt, trace):
            self._add(conversation, key, whole=key == prompt.tail)
        return ConversationTurn(conversation.session, conversation.turn)

    def find(self, messages: Sequence[Mapping[str, Any]], sender: str = "", trace: str = "") -> str:
        """Return the session that a prompt continues, empty for none, without adding the prompt."""
        conversation = self._find(_parse_prompt(messages, sender), trace)
        return conversation.session if conversation else ""

    def add_answer(self, session: str, message: Mapping[str, Any]) -> None:
        """Record the answer to the newest prompt of a session; ignore unknown sessions."""
        conversation = self._conversations.get(session)
        if conversation is not None:
            part = normal_form({**message, "role": "assistant"})
            self._add(conversation, hash((conversation.tail, part)))
            if len(part) >= MIN_DISTINCT_BYTES:
                self._add(conversation, hash(("a", conversation.opening, part)))

    def _find(self, prompt: _Prompt, trace: str) -> _Conversation | None:
        messages, known = prompt.messages, self._by_key
        if not any([message.get("role") == "assistant" for message in messages]):
            return None
        repeated = False
        for index in range(len(messages) - 1, -1, -1):
            conversation = known.get(prompt.chain[index])
            if conversation is None:
                continue
            if conversation.keys.get(prompt.tail):
                repeated = True  # not its next turn; an older prefix may match another one
                continue
            if messages[index].get("role") == "assistant" or (
                index + 1 < len(messages) and messages[index + 1].get("role") == "assistant"
            ):
                return conversation
        if repeated:
            return None
        answers = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
        for index in answers[:-9:-1]:
            if conversation := known.get(hash(("a", prompt.opening, prompt.parts[index]))):
                return conversation
        if trace and any(message.get("role") == "tool" for message in messages):
            return known.get(_trace_key(prompt, trace))
        return None

    def _new(self) -> _Conversation:
        conversation = _Conversation(f"c-{self._chance.token(5)}")
        self._conversations[conversation.session] = conversation
        if len(self._conversations) > self._cap:
            _, oldest = self._conversations.popitem(last=False)
            for key in oldest.keys:
                self._drop(oldest, key)
        return conversation

    def _add(self, conversation: _Conversation, key: int, *, whole: bool = False) -> None:
        conversation.keys[key] = conversation.keys.pop(key, False) or whole
        self._by_key[key] = conversation
        if len(conversation.keys) > MAX_KEYS:
            oldest = next(iter(conversation.keys))
            del conversation.keys[oldest]
            self._drop(conversation, oldest)

    def _drop(self, conversation: _Conversation, key: int) -> None:
        if self._by_key.get(key) is conversation:
            del self._by_key[key]


def _parse_prompt(messages: Sequence[Mapping[str, Any]], sender: str) -> _Prompt:
    turns: list[Mapping[str, Any]] = []
    parts: list[bytes] = []
    chain: list[int] = []
    system: str | None = None
    first_user: bytes | None = None
    budget = _ReadBudget()
    digest = seed = hash(("sender", sender))
    for message in messages:
        role = message.get("role")
        if role in SYSTEM_ROLES:
            if system is None:
                system = content_text(message.get("content"))[:400]
            continue
        part = normal_form(message, budget)
        digest = hash((digest, part))
        if first_user is None and role == "user":
            first_user = part
        turns.append(message)
        parts.append(part)
        chain.append(digest)
    opening = hash((seed, _system_digest_text(system or ""), first_user or b""))
    return _Prompt(turns, parts, chain, digest, opening)


@lru_cache(maxsize=256)
def _system_digest_text(beginning: str) -> bytes:
    """Return the normal form of a system prompt; cached, as it repeats in all requests."""
    return _text(beginning)


def _trace_key(prompt: _Prompt, trace: str) -> int:
    return hash(("t", prompt.opening, trace))


def _keys_of(prompt: _Prompt, trace: str) -> Iterator[int]:
    """Yield the digests by which the prompt's conversation is found again.

    If the last user message moves, the next prompt only contains the messages before it, so their
    digest is one too. It is not used after an assistant's turn: conversations that begin with the
    same examples would be mixed up.
    """
    if not prompt.chain:
        return
    if len(prompt.messages) > 1:
        before, last = prompt.messages[-2:]
        if last.get("role") == "user" and before.get("role") != "assistant":
            yield prompt.chain[-2]
    yield prompt.chain[-1]
    if trace:
        yield _trace_key(prompt, trace)
