"""How a policy reads and writes text, as the sampler and the backend want it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from engine.interface import Prompt


class Decoder(Protocol):
    """What a tokenizer is asked for."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Bytes of `ids`; tags are nothing."""


class Language(Decoder, Protocol):
    """How a policy reads and writes text."""

    @property
    def name(self) -> str:
        """What to call the policy, for people."""

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Hyperparameters that no job sets and that differ from the usual ones."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        """Chat messages to a prompt that leaves room in `context` tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`; tags are nothing."""

    def spell(self, ids: Sequence[int]) -> list[str]:
        """What each id reads as, tags by name."""
