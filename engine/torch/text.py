"""Text of a transformers model: its chat template, its tokenizer, its tool calls."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.interface import Prompt, ToolCall
from engine.policy.answer import ParsedAnswer

_HERMES = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_MARKER = "<tool_call>"


class ModelText:
    """Conversion between text and token ids by the model's own tokenizer.

    Args:
        tokenizer: A fast tokenizer of transformers with a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.calls_tools = _MARKER in str(tokenizer.chat_template)
        """Whether the template shows tools in the form whose calls are parsed."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        """Convert chat messages to a prompt.

        A prompt that leaves no room for `max_tokens` in `context` is marked as truncated and holds
        its first ids only; the engine refuses it.
        """
        ids = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=list(tools) if tools and self.calls_tools else None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        room = max(1, context - max_tokens)
        return Prompt(tuple(ids[:room]), truncated=len(ids) > room)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; control tokens decode to nothing."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the display text of each id; control tokens have names."""
        return [str(self._tokenizer.decode([token])) for token in ids]

    def decoder(self) -> Callable[[int], str]:
        """Return a function that returns the text that each further token completes."""
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=True)
        inner = self._tokenizer.backend_tokenizer
        return lambda token: stream.step(inner, token) or ""

    def parse(self, text: str) -> ParsedAnswer | None:
        """Return the tool calls in an answer; None when it has none that can be read."""
        calls = []
        for body in _HERMES.findall(text):
            try:
                call = json.loads(body)
                name, arguments = call["name"], call.get("arguments", {})
            except (ValueError, KeyError, TypeError, AttributeError):
                return None
            if not isinstance(name, str):
                return None
            values = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(ToolCall(name, values))
        if not calls:
            return None
        return ParsedAnswer(_HERMES.sub("", text).strip(), tuple(calls))

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that start a tool call."""
        return (_MARKER,) if self.calls_tools else ()
