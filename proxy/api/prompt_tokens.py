"""How many tokens a prompt has, where the upstream has no tokenizer to ask.

An estimate, learned from answered requests: their prompts' bytes and the tokens the upstream said
they were. Of a prompt that was just answered the number is exact, and of one that goes on from it
the part that is known is.
"""

import hashlib
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from proxy.dialects.request import ChatRequest

BYTES_PER_TOKEN = 3.5
"""Before anything is learned. On the low side: a prompt taken for longer than it is does less harm
than one that is suddenly too long."""
PLAUSIBLE = (0.5, 16.0)
"""Bytes a token has. Beyond it the upstream counted something else, as a prompt cut to fit."""
IMAGE_TOKENS = 1000
"""What an image counts for; nothing is learned from prompts that have any."""
REMEMBERED = 4096
"""Prompts whose exact length is kept."""
PAIRS = 128
"""Answered prompts the ratio is taken from: the newest."""
NEAR = 4.0
"""Prompts up to so many times longer or shorter tell the ratio first: a template's fixed part
weighs more in a short one."""
ENOUGH = 5
"""Near prompts that are enough to leave the others aside."""

_encode = msgspec.json.Encoder().encode


class PromptPrefix(NamedTuple):
    """A prompt up to and with one of its messages."""

    key: bytes
    size: int
    images: int


class TokenEstimator:
    """What one server's tokenizer was seen to do; made for the event loop's thread."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[int, float]] = deque(maxlen=PAIRS)
        self._exact: OrderedDict[bytes, int] = OrderedDict()

    def learn(
        self, request: ChatRequest, prompt_tokens: int, marks: Sequence[PromptPrefix] = ()
    ) -> None:
        """Take in one answered request.

        Args:
            request: As it was read.
            prompt_tokens: The upstream's `usage.prompt_tokens`; 0 means it does not say.
            marks: What `prefixes_of` makes of the request, where that is known.
        """
        if prompt_tokens < 1:
            return
        whole = (marks or prefixes_of(request))[-1]
        self._exact[whole.key] = prompt_tokens
        self._exact.move_to_end(whole.key)
        if len(self._exact) > REMEMBERED:
            self._exact.popitem(last=False)
        ratio = whole.size / prompt_tokens
        if not whole.images and PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]:
            self._pairs.append((whole.size, ratio))

    def estimate(self, request: ChatRequest, marks: Sequence[PromptPrefix] = ()) -> int:
        """Tokens of the request's prompt, at least 1; exact when it was just answered."""
        marks = marks or prefixes_of(request)
        whole = marks[-1]
        known, base = 0, PromptPrefix(b"", 0, 0)
        for mark in reversed(marks):
            if (found := self._exact.get(mark.key)) is not None:
                known, base = found, mark
                break
        rest = (whole.size - base.size) / self._ratio(whole.size)
        return max(1, known + round(rest) + IMAGE_TOKENS * (whole.images - base.images))

    def knows(self, request: ChatRequest, marks: Sequence[PromptPrefix] = ()) -> bool:
        """Whether `estimate` is exact."""
        return (marks or prefixes_of(request))[-1].key in self._exact

    def _ratio(self, size: int) -> float:
        near = [ratio for told, ratio in self._pairs if told / NEAR <= size <= told * NEAR]
        ratios = near if len(near) >= ENOUGH else [ratio for _, ratio in self._pairs]
        return median(ratios) if ratios else BYTES_PER_TOKEN


def prefixes_of(request: ChatRequest) -> list[PromptPrefix]:
    """The prompt after its tools, and after each of its messages; goes over all of it."""
    tools = _encode([request.body.get("tools"), request.body.get("chat_template_kwargs")])
    digest = hashlib.blake2b(tools, digest_size=16)
    size, images = len(tools), 0
    marks = [PromptPrefix(digest.digest(), size, images)]
    for message in request.messages:
        told = _encode(message)
        digest.update(told)
        size += len(told)
        for url in _images(message):
            images += 1
            size -= len(url)
        marks.append(PromptPrefix(digest.digest(), size, images))
    return marks


def _images(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if not isinstance(content, list):
        return []
    told = [part.get("image_url") for part in content if isinstance(part, dict)]
    urls = [one.get("url") if isinstance(one, dict) else one for one in told]
    return [url for url in urls if isinstance(url, str)]
