"""Interpretation of responses: refused claims, outcomes of ends, usable completions.

These are pure functions of status and body. The protocol notes describe the quirks that they handle
(sections 2.1, 3, 4.3, 5 and 12).
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from ajet_swarm.common.lenient_json import lenient
from ajet_swarm.http.interface import Response
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind, ServerRefusal, SwarmError
from ajet_swarm.protocol.schemas import Verdict

T = TypeVar("T")

OVERFLOW: Final = "AgentJet: Exceeded max model context length."
"""Beginning of an answer that reports an error: the conversation was too long."""
VLLM_OVERFLOW: Final = "maximum context length"
"""Part of the text of vLLM's 400 for the same error."""
_ALREADY: Final = re.compile(r"\d+ steps are asked for and the policy has \d+ already")
"""Text of the embedded engine's refusal of a job whose steps are all trained."""
_TITLE: Final = re.compile(r"<(?:title|h1)\b[^>]*>\s*([^<\s][^<]*)<", re.IGNORECASE)
"""Title or first heading of a page, such as the one of a front that cannot reach the server."""
INVALID_REQUEST: Final = frozenset({400, 413, 422})
"""Statuses for an invalid chat request, which is useless to repeat."""


class RefusedKind(StrEnum):
    """Why a claim gave no episode."""

    SYNCING = "syncing"
    POST_ROLLING = "post_rolling"
    NONE_AVAILABLE = "none_available"
    NOT_ROLLING = "not_rolling"
    OTHER = "other"
    UNKNOWN = "unknown"
    """No response: an episode may have been claimed for this client; check the buffer."""
    UNREACHABLE = "unreachable"
    """The claim was never sent."""


class EndKind(StrEnum):
    """Outcome of an `end_episode`."""

    ENDED = "ended"
    """The server accepted it; that is not yet "counted" (section 4.3)."""
    RECORDED = "recorded"
    """No server is used for training: nothing was sent, and the reward is in the journal."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """No response; the end may have arrived. Do not send it again."""
    UNREACHABLE = "unreachable"
    """It was never sent."""
    NOT_FOUND = "not_found"
    """The record is gone: ended before, or wiped at a batch boundary."""
    NOT_CLAIMED = "not_claimed"
    """The server took the episode back."""
    OTHER_CLIENT = "other_client"
    """The server took the episode back, and another client has claimed it since."""
    NOT_ROLLING = "not_rolling"
    SYNCING = "syncing"
    EXPIRED = "expired"
    """Its lifetime in this client had passed, so it was given back instead."""
    ERROR = "error"


class AbortKind(StrEnum):
    """Outcome of an `abort_episode`."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    """The server answered, and did not abort it."""
    UNREACHABLE = "unreachable"
    """It was never sent."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """No response from the server, which may still process it."""


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """An episode that this client holds until it is ended or aborted, or expires."""

    episode_uuid: str
    base_url: str
    """OpenAI base URL, at this client's address of the server; ends in `/v1`."""
    api_key: str
    episode_type: str
    at: float
    """Unix seconds at which the claim was sent."""
    discard_timeout: float
    """Seconds without a call after which the server takes it back, up to 10 s late."""

    def __repr__(self) -> str:  # without the key, which must not appear in logs
        return f"Claimed({self.episode_uuid}, {self.episode_type})"


class ClaimRefused(msgspec.Struct, frozen=True, gc=False):
    """The reason why a claim gave no episode."""

    kind: RefusedKind
    text: str = ""


class EndOutcome(msgspec.Struct, frozen=True, gc=False):
    """Outcome of an `end_episode`, with the server's text."""

    kind: EndKind
    text: str = ""
    timed_out: bool = False
    """With `UNKNOWN_OUTCOME`: the connection did not break, the server just did not answer in time.
    It may still process the end."""

    @property
    def ended(self) -> bool:
        """The server accepted it: the only outcome that counts."""
        return self.kind is EndKind.ENDED


class ChatAnswer(msgspec.Struct, frozen=True, gc=False):
    """A usable completion, as bytes and parsed; `answer_of` builds one."""

    status: int
    body: bytes
    parsed: dict[str, Any]
    message: dict[str, Any]
    """The assistant's message: `role`, `content` (may be None), perhaps `tool_calls`."""
    finish_reason: str
    """`stop`, `length`, `tool_calls`; empty when the server reports none."""
    usage: dict[str, Any]
    """Token counts; empty when the server reports none."""

    @property
    def text(self) -> str:
        """The message's text, empty when it has none."""
        content = self.message.get("content")
        return content if isinstance(content, str) else ""


def answer_of(status: int, body: bytes, parsed: dict[str, Any]) -> ChatAnswer:
    """Return the answer in a completion that has a choice with a message."""
    choice, usage = parsed["choices"][0], parsed.get("usage")
    reason = choice.get("finish_reason")
    return ChatAnswer(
        status,
        body,
        parsed,
        choice["message"],
        reason if isinstance(reason, str) else str(reason or ""),
        usage if isinstance(usage, dict) else {},
    )


def decoded(response: Response, kind: type[T], where: str) -> T:
    """Return the body of a 200 as `kind`.

    Raises:
        ServerRefusal: any other status, or a `Verdict` without success.
        SwarmError: the body is not that of the route.
    """
    if response.status != 200:
        raise _refusal(response, where)
    try:
        answer = msgspec.json.decode(response.body, type=kind, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SwarmError(
            f"the answer was not understood: {error}", where, "Is this an AgentJet swarm server?"
        ) from error
    if isinstance(answer, Verdict) and answer.success is False:
        raise _refusal(response, where)
    return answer


def already_trained(text: str) -> str:
    """Return a message for a refused job whose steps are all trained; empty for other refusals."""
    match = _ALREADY.search(text)
    return f"training complete: {match[0]}" if match else ""


def _refusal(response: Response, where: str) -> ServerRefusal:
    """Return the error of an error response, with the server's text."""
    return ServerRefusal(response.status, verdict(response).text, where)


def verdict(response: Response) -> Verdict:
    """Return the body as a verdict; plain text, or the title of a page, becomes its `message`."""
    try:
        return msgspec.json.decode(response.body, type=Verdict, strict=False)
    except (msgspec.MsgspecError, RecursionError):
        text = response.body[:2000].decode(errors="replace").strip()
        if text.startswith("<") and (title := _TITLE.search(text)):
            text = " ".join(title[1].split())
        return Verdict(message=text)


_CAUSES: Final = (
    ("WEIGHT_SYNCING", RefusedKind.SYNCING),
    ("syncing weights", RefusedKind.SYNCING),
    ("ROLLING_POST", RefusedKind.POST_ROLLING),
    ("post-rolling phase", RefusedKind.POST_ROLLING),
    ("No available episodes", RefusedKind.NONE_AVAILABLE),
    ("Engine not ready", RefusedKind.NOT_ROLLING),
    ("ENGINE.", RefusedKind.NOT_ROLLING),
)
"""Part of a claim's `fail_cause` -> kind, in the wordings of several versions; the first counts."""


def refused(cause: str) -> ClaimRefused:
    """Classify a claim's `fail_cause`."""
    kinds = (kind for text, kind in _CAUSES if text in cause)
    return ClaimRefused(next(kinds, RefusedKind.OTHER), cause)


_UNKNOWN_OUTCOME: Final = frozenset({502, 504, 520, 524})
"""Statuses of a gateway for a request whose outcome is unknown; the last two are Cloudflare's."""


def abort_kind(response: Response) -> AbortKind:
    """Return the outcome of an `abort_episode` with a response."""
    if response.status == 200 and verdict(response).success:
        return AbortKind.CONFIRMED
    if response.status in _UNKNOWN_OUTCOME:
        return AbortKind.UNKNOWN_OUTCOME
    return AbortKind.REFUSED


def end_outcome(response: Response) -> EndOutcome:
    """Return the outcome of an `end_episode` with a response (section 4.3)."""
    reply = verdict(response)
    text, bad = reply.text, response.status == 400
    if response.status == 200:
        return EndOutcome(EndKind.ENDED if reply.success else EndKind.ERROR, text)
    kind = EndKind.ERROR
    if response.status in _UNKNOWN_OUTCOME:
        kind = EndKind.UNKNOWN_OUTCOME
    elif "different client" in text:
        kind = EndKind.OTHER_CLIENT
    elif bad and "not in rolling state" in text:
        kind = EndKind.SYNCING if "WEIGHT_SYNCING" in text else EndKind.NOT_ROLLING
    elif bad and "not in claimed status" in text:
        kind = EndKind.NOT_CLAIMED
    elif bad and "not found" in text:
        kind = EndKind.NOT_FOUND
    return EndOutcome(kind, text or f"HTTP {response.status}")


def chat_answer(response: Response, where: str) -> ChatAnswer:
    """Return the completion in a chat response.

    Raises:
        ChatError: there is none, as in a 200 that carries an error.
    """
    if response.status != 200:
        raise _chat_error(response, where)
    parsed = read_json(response.body)
    if not isinstance(parsed, dict):
        start = response.body[:200].decode(errors="replace")
        raise ChatError(
            ChatErrorKind.UPSTREAM, f"not a JSON object: {start}", where=where, status=200
        )
    message = _message(parsed)
    if message is None:
        raise _error_in_200(parsed, response, where)
    content = message.get("content")
    if isinstance(content, str) and content.startswith(OVERFLOW):
        raise ChatError(ChatErrorKind.OVERFLOW, content, where=where, status=200)
    return answer_of(response.status, response.body, parsed)


def read_json(data: bytes) -> Any:
    """Return the value of JSON, or None when `data` is not JSON.

    Real servers send halves of surrogate pairs, NaN and infinities; these are tolerated.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        return lenient(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _message(parsed: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = parsed.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    message = choices[0].get("message")
    return message if isinstance(message, dict) else None


def _error_in_200(parsed: Mapping[str, Any], response: Response, where: str) -> ChatError:
    """Return the error in a 200: servers up to 2026-05 send a bad key's exception as a body."""
    status = parsed.get("status_code")
    unauthorized = status in (401, 403)
    kind = ChatErrorKind.UNAUTHORIZED if unauthorized else ChatErrorKind.UPSTREAM
    text = verdict(response).text or "an answer without a choice"
    return ChatError(kind, text, where=where, status=status if isinstance(status, int) else 200)


def _chat_error(response: Response, where: str) -> ChatError:
    reply = verdict(response)
    text = violations(reply.detail) or _openai_error(response.body) or reply.text
    text = text or f"HTTP {response.status}"
    if response.status == 404 and text != "Not Found":  # the latter: no chat route at this address
        kind = ChatErrorKind.LOST_EPISODE
    elif response.status in (401, 403):
        kind = ChatErrorKind.UNAUTHORIZED
    elif response.status in INVALID_REQUEST:
        kind = ChatErrorKind.OVERFLOW if VLLM_OVERFLOW in text else ChatErrorKind.REFUSED
    else:
        kind = ChatErrorKind.UPSTREAM
    return ChatError(kind, text, where=where, status=response.status)


def violations(detail: Any) -> str:
    """Return FastAPI's list of violations of a body as text; empty for any other `detail`.

    The text does not repeat the body, which may be long and private.
    """
    if not isinstance(detail, list):
        return ""
    texts = []
    for violation in detail[:5]:
        if not isinstance(violation, dict) or not isinstance(violation.get("msg"), str):
            return ""
        loc = violation.get("loc")
        where = ".".join(str(part) for part in loc) if isinstance(loc, list) else ""
        texts.append(f"{where}: {violation['msg']}" if where else violation["msg"])
    return "; ".join(texts)


def _openai_error(body: bytes) -> str:
    """Return the text of `{"error": {"message": ...}}`."""
    try:
        parsed = msgspec.json.decode(body)
        text = parsed["error"]["message"]
        return text if isinstance(text, str) else ""
    except (msgspec.MsgspecError, RecursionError, TypeError, KeyError):
        return ""
