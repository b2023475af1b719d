"""Estimate of the number of tokens of a prompt when the upstream has no tokenizer route.

The estimate is learned from answered requests: the bytes of their prompts and the tokens that the
upstream reported. For a recently answered prompt the number is exact, and so is the part of a
prompt that continues one.
"""

import hashlib
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from proxy.dialects.request import ChatRequest

BYTES_PER_TOKEN = 3.5
"""Initial ratio. It is low on purpose: an overestimate does less harm than a prompt that turns out
to be too long."""
PLAUSIBLE = (0.5, 16.0)
"""Plausible bytes per token. Outside, the upstream counted something else, such as a truncated
prompt."""
IMAGE_TOKENS = 1000
"""Tokens counted for an image; prompts with images are not learned from."""
MAX_EXACT = 4096
"""Number of prompts whose exact length is stored."""
MAX_SAMPLES = 128
"""Number of recent prompts from which the ratio is computed."""
NEAR_FACTOR = 4.0
"""The ratio is computed from prompts that are at most this many times longer or shorter: the fixed
part of a template weighs more in a short prompt."""
ENOUGH_NEAR = 5
"""Number of prompts of similar length above which all others are ignored."""

_encode = msgspec.json.Encoder().encode


class PromptPrefix(NamedTuple):
    """A prompt up to and including one of its messages."""

    key: bytes
    size: int
    images: int


class TokenEstimator:
    """Estimator for the tokenizer of one server; not thread-safe."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)
        self._exact: OrderedDict[bytes, int] = OrderedDict()

    def learn(
        self, request: ChatRequest, prompt_tokens: int, prefixes: Sequence[PromptPrefix] = ()
    ) -> None:
        """Learn from one answered request.

        Args:
            request: The parsed request.
            prompt_tokens: The upstream's `usage.prompt_tokens`; 0 if unknown.
            prefixes: The result of `prefixes_of` for the request; empty to compute it.
        """
        if prompt_tokens < 1:
            return
        whole = (prefixes or prefixes_of(request))[-1]
        self._exact[whole.key] = prompt_tokens
        self._exact.move_to_end(whole.key)
        if len(self._exact) > MAX_EXACT:
            self._exact.popitem(last=False)
        ratio = whole.size / prompt_tokens
        if not whole.images and PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]:
            self._samples.append((whole.size, ratio))

    def estimate(self, request: ChatRequest, prefixes: Sequence[PromptPrefix] = ()) -> int:
        """Return the number of tokens of the prompt, at least 1; exact if recently answered."""
        prefixes = prefixes or prefixes_of(request)
        whole = prefixes[-1]
        known, known_prefix = 0, PromptPrefix(b"", 0, 0)
        for prefix in reversed(prefixes):
            if (tokens := self._exact.get(prefix.key)) is not None:
                known, known_prefix = tokens, prefix
                break
        other_tokens = (whole.size - known_prefix.size) / self._ratio(whole.size)
        other_images = whole.images - known_prefix.images
        return max(1, known + round(other_tokens) + IMAGE_TOKENS * other_images)

    def is_exact(self, request: ChatRequest, prefixes: Sequence[PromptPrefix] = ()) -> bool:
        """Return whether `estimate` is exact."""
        return (prefixes or prefixes_of(request))[-1].key in self._exact

    def _ratio(self, size: int) -> float:
        low, high = size / NEAR_FACTOR, size * NEAR_FACTOR
        near = [ratio for known_size, ratio in self._samples if low <= known_size <= high]
        ratios = near if len(near) >= ENOUGH_NEAR else [ratio for _, ratio in self._samples]
        return median(ratios) if ratios else BYTES_PER_TOKEN


def prefixes_of(request: ChatRequest) -> list[PromptPrefix]:
    """Return the prefixes of a prompt: its tools, then each of its messages added."""
    tools = _encode([request.body.get("tools"), request.body.get("chat_template_kwargs")])
    digest = hashlib.blake2b(tools, digest_size=16)
    size, images = len(tools), 0
    prefixes = [PromptPrefix(digest.digest(), size, images)]
    for message in request.messages:
        encoded = _encode(message)
        digest.update(encoded)
        size += len(encoded)
        for url in _images(message):
            images += 1
            size -= len(url)
        prefixes.append(PromptPrefix(digest.digest(), size, images))
    return prefixes


def _images(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if not isinstance(content, list):
        return []
    images = [part.get("image_url") for part in content if isinstance(part, dict)]
    urls = [image.get("url") if isinstance(image, dict) else image for image in images]
    return [url for url in urls if isinstance(url, str)]
