"""The events of a chat or legacy completion's stream: `data:` lines of one head. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core.version import version
from proxy.dialects.request import ChatRequest, PublicAnswer, usage_of
from proxy.http.errors import ApiError

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


def fingerprint() -> str:
    """What stands where vLLM tells its own version."""
    return f"ajet-console-{version()}"


_MARK = b',"system_fingerprint":' + _encode(fingerprint())


class Chunks:
    """Events with one id, one time and one model in all of them.

    Args:
        head: Their first fields.
        request: What usage it asks for.
    """

    def __init__(self, head: Mapping[str, Any], request: ChatRequest) -> None:
        self._head = head
        self._start = b""
        """Of each event; made for the first one, since most answers are whole."""
        self._total = request.include_usage
        self._prompt = request.prompt_tokens
        self._each = request.n if request.parts else 0
        self._running = request.include_usage and request.continuous_usage
        self.mark = b"" if self._total else _MARK
        """Of an event that ends a choice: without usage it is the last one."""

    def event(self, choice: bytes, more: bytes = b"") -> bytes:
        """One event.

        Args:
            choice: Its choice as JSON, or nothing.
            more: Fields after the choices, each with a comma before it.
        """
        if not self._start:
            self._start = b"data: " + _encode(self._head)[:-1] + b',"choices":['
        return self._start + choice + b"]" + more + b"}\n\n"

    def waiting(self) -> bytes:
        """Running numbers before anything is known of an answer but the length of its prompt."""
        return self.usage(self._prompt, 0)

    def usage(self, prompt: int, completion: int) -> bytes:
        """Running numbers of tokens as a field, where they are asked for."""
        if not self._running:
            return b""
        return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
            prompt,
            prompt + completion,
            completion,
        )

    def end(self, winners: Sequence[PublicAnswer]) -> bytes:
        """What follows all choices: the usage, where it is asked for, and the end mark."""
        if not self._total:
            return DONE
        usage = {
            key: value for key, value in usage_of(winners, self._each).items() if value is not None
        }
        return self.event(b"", b',"usage":' + _encode(usage) + _MARK) + DONE

    @staticmethod
    def error(refusal: ApiError) -> bytes:
        """What ends a stream that has begun and cannot be finished."""
        return b"data: " + refusal.body() + b"\n\n" + DONE


def share(total: int, done: int, size: int) -> int:
    """Tokens told after `done` of `size` characters; the last token comes with the end."""
    return max(total - 1, 0) * done // max(size, 1)
