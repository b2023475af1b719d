"""Text of a transformers model: its chat template, its tokenizer, its tool calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.interface import Prompt
from engine.torch.sampling.tool_calls import CallFormat, for_template, format_of


class ModelText:
    """Conversion between text and token ids by the model's own tokenizer.

    Args:
        tokenizer: A fast tokenizer of transformers with a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._form = format_of(str(tokenizer.chat_template))
        self._controls = _control_tokens(tokenizer, self._form)
        self._longest = max(map(len, tokenizer.get_vocab()), default=1)
        """Characters of the longest token, at least."""

    def call_format(self, prompt: Prompt) -> CallFormat | None:
        """Return how the answer to a prompt writes tool calls; None when it has none to call, or
        the template shows no format that is known."""
        return self._form if prompt.tools else None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        """Convert chat messages to a prompt.

        A prompt that leaves no room for `max_tokens` in `context` is marked as truncated and holds
        its first ids only; the engine refuses it. A text that is too long for any tokens is not
        encoded: that takes seconds for some megabytes.

        Raises:
            ValueError: the template refuses the messages, or the arguments of a call are not JSON.
        """
        from jinja2 import TemplateError

        texts = (message.get("content") for message in messages)
        if sum(len(text) for text in texts if isinstance(text, str)) > context * self._longest:
            return Prompt((), truncated=True)
        try:
            ids = self._tokenizer.apply_chat_template(
                for_template(messages, self._form),
                tools=list(tools) if tools else None,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        except (TemplateError, LookupError, AttributeError, RuntimeError) as error:
            raise ValueError(str(error)) from error
        room = max(1, context - max_tokens)
        if len(ids) > room:
            return Prompt(tuple(ids[:room]), truncated=True, length=len(ids))
        return Prompt(tuple(ids), tools=tuple(tools or ()))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; control tokens decode to nothing."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the display text of each id; control tokens have names."""
        return [str(self._tokenizer.decode([token])) for token in ids]

    def decoder(self, form: CallFormat | None = None) -> Callable[[int], str]:
        """Return a function that returns the text that each further token completes.

        Args:
            form: Format of the tool calls; its control tokens have a text.
        """
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=True)
        inner = self._tokenizer.backend_tokenizer
        controls = self._controls if form is not None else {}
        return lambda token: controls.get(token) or stream.step(inner, token) or ""


def _control_tokens(tokenizer: Any, form: CallFormat | None) -> dict[int, str]:
    """Return the texts of a format that are control tokens, by their ids."""
    if form is None:
        return {}
    return {
        token: str(added.content)
        for token, added in tokenizer.added_tokens_decoder.items()
        if added.special and str(added.content) in form.controls
    }
