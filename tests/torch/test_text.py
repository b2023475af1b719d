"""Control tokens of tool calls have a text where the answer may call a tool."""

from typing import Any

import pytest
import torch
import transformers

from engine.interface import Prompt, SamplingParams
from engine.policy.answer import Request
from engine.torch.sampling.sampler import TorchSampler
from engine.torch.text import ModelText
from tests.torch.models import TEMPLATE

TOOLS = ({"type": "function", "function": {"name": "a"}},)


def tokenizer_with(*controls: str, template: str) -> Any:
    """A tokenizer of letters with control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {chr(code): code for code in range(1, 200)} | {"[UNK]": 200, "[END]": 0}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="[UNK]",
        eos_token="[END]",
        additional_special_tokens=list(controls),
    )
    tokenizer.chat_template = template
    return tokenizer


class ScriptedBatch:
    """A `RowBatch` of one row whose next token is always that of a script."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self.logits: Any = None

    def join(self, prompt: Any, count: int) -> None:
        """Begin."""
        self.decode([0])

    def decode(self, tokens: Any) -> None:
        """Make the next token certain."""
        self.logits = torch.full((1, 300), -1e9)
        self.logits[0, self._tokens.pop(0)] = 0.0

    def keep(self, index: Any) -> None:
        """Nothing."""

    def clear(self) -> None:
        """Nothing."""

    def release(self) -> None:
        """Nothing."""

    def resize(self, slots: int) -> None:
        """Nothing."""


def sampled(tokenizer: Any, text: str, tools: Any = TOOLS) -> tuple[Any, str]:
    """An answer of these tokens, and its pieces."""
    tokens = [*tokenizer.encode(text), 0]
    ends = frozenset({0})
    sampler = TorchSampler(ScriptedBatch(tokens), ModelText(tokenizer), ends, 500, 1)
    pieces: list[str] = []
    sampler.add(Request(Prompt((5,), tools=tools), SamplingParams(max_tokens=400), on_text=print))
    while True:
        finished = sampler.step(0)
        pieces += [piece for _, piece in sampler.take_pieces()]
        if finished:
            return finished[0].completion, "".join(pieces)


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        ("[TOOL_CALLS]", 'I look. [TOOL_CALLS][{"name": "a", "arguments": {"b": 1}}]'),
        ("<|python_tag|>", '<|python_tag|>{"name": "a", "parameters": {"b": 1}}'),
        ("<tool_call>", 'I look. <tool_call>{"name": "a", "arguments": {"b": 1}}</tool_call>'),
    ],
)
@pytest.mark.parametrize("special", [True, False])
def test_a_call_is_read_whether_or_not_its_marker_is_a_control_token(
    marker: str, text: str, special: bool
) -> None:
    controls = [marker, "</tool_call>"] if special else []
    tokenizer = tokenizer_with(*controls, template=f"{TEMPLATE}{{#- {marker} -#}}")
    answer, pieces = sampled(tokenizer, text)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [("a", '{"b": 1}')]
    assert answer.finish_reason == "tool_calls"
    assert answer.text == pieces == ("I look. " if text.startswith("I") else "")


def test_without_tools_nothing_is_read_as_a_call() -> None:
    tokenizer = tokenizer_with("[TOOL_CALLS]", template=f"{TEMPLATE}{{#- [TOOL_CALLS] -#}}")
    answer, pieces = sampled(tokenizer, 'x[TOOL_CALLS][{"name": "a"}]', ())
    assert (answer.tool_calls, answer.finish_reason) == ((), "stop")
    assert answer.text == pieces == 'x[{"name": "a"}]'


def test_what_the_template_of_transformers_refuses_is_quoted() -> None:
    text = ModelText(tokenizer_with(template="{{ raise_exception('roles must alternate') }}"))
    with pytest.raises(ValueError, match="roles must alternate"):
        text.render([{"role": "user", "content": "a"}], None, 10, 100)
