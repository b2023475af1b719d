"""The `data:` events of a chat or legacy completion's stream. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core.version import version
from proxy.dialects.request import ChatRequest, PublicAnswer, usage_of
from proxy.http.errors import ApiError

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


def fingerprint() -> str:
    """Return the `system_fingerprint`, which in vLLM's answers is its version."""
    return f"ajet-console-{version()}"


_FINGERPRINT_FIELD = b',"system_fingerprint":' + _encode(fingerprint())


class Chunks:
    """Encoder of a stream's events, all with the same id, time and model.

    Args:
        head: The first fields of every event.
        request: The request; it determines which events have usage.
    """

    def __init__(self, head: Mapping[str, Any], request: ChatRequest) -> None:
        self._head = head
        self._start = b""
        """The first bytes of every event; encoded with the first one, as most answers have none."""
        self._final_usage = request.include_usage
        self._prompt = request.prompt_tokens
        self._each = request.n if request.parts else 0
        self._running_usage = request.include_usage and request.continuous_usage
        self.last_fields = b"" if self._final_usage else _FINGERPRINT_FIELD
        """Extra fields of an event that ends a choice; with usage, a later event has them."""

    def event(self, choice: bytes, more: bytes = b"") -> bytes:
        """Return one event.

        Args:
            choice: The choice as JSON; empty for none.
            more: JSON fields after the choices, each with a comma before it.
        """
        if not self._start:
            self._start = b"data: " + _encode(self._head)[:-1] + b',"choices":['
        return self._start + choice + b"]" + more + b"}\n\n"

    def prompt_usage(self) -> bytes:
        """Return the running usage while only the prompt's length is known."""
        return self.usage(self._prompt, 0)

    def usage(self, prompt: int, completion: int) -> bytes:
        """Return running token counts as a JSON field; empty unless requested."""
        if not self._running_usage:
            return b""
        return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
            prompt,
            prompt + completion,
            completion,
        )

    def end(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return what follows all choices: the usage, if requested, and the end mark."""
        if not self._final_usage:
            return DONE
        usage = {
            key: value for key, value in usage_of(winners, self._each).items() if value is not None
        }
        return self.event(b"", b',"usage":' + _encode(usage) + _FINGERPRINT_FIELD) + DONE

    @staticmethod
    def error(refusal: ApiError) -> bytes:
        """Return the end of a stream that cannot be finished."""
        return b"data: " + refusal.body() + b"\n\n" + DONE


def tokens_so_far(all_tokens: int, sent_chars: int, all_chars: int) -> int:
    """Estimate the tokens in `sent_chars` of `all_chars`; the last token comes with the end."""
    return max(all_tokens - 1, 0) * sent_chars // max(all_chars, 1)
