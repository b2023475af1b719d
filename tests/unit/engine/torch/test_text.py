"""Rendering by a model's own template, with a tokenizer of this file in place of transformers'."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from engine.torch.sampling.tool_calls import HERMES, LLAMA
from engine.torch.text import ModelText

jinja2 = pytest.importorskip("jinja2")  # comes with torch

TOOLS = [{"type": "function", "function": {"name": "find"}}]
USER = {"role": "user", "content": "hi"}


@dataclass
class LetterTokenizer:
    """One id per letter of what the template renders."""

    chat_template: str
    added_tokens_decoder: Any = None

    def get_vocab(self) -> dict[str, int]:
        """Tokens of four characters at most."""
        return {"a": 1, "abcd": 2}

    def apply_chat_template(self, messages: Any, tools: Any, **_options: Any) -> list[int]:
        def refuse(text: str) -> None:
            raise jinja2.TemplateError(text)

        environment = jinja2.Environment(autoescape=False)
        environment.globals["raise_exception"] = refuse
        template = environment.from_string(self.chat_template)
        return [ord(letter) for letter in template.render(messages=messages, tools=tools)]


def model_text(template: str) -> ModelText:
    """The text of a model with a template."""
    return ModelText(LetterTokenizer(template, {}))


def rendered(template: str, messages: list[dict[str, Any]], tools: Any = None) -> str:
    """What the template shows."""
    prompt = model_text(template).render(messages, tools, 10, 2_000)
    return "".join(map(chr, prompt.tokens))


def test_tools_are_given_to_every_template() -> None:
    assert json.loads(rendered("{{ tools | tojson }}", [USER], TOOLS)) == TOOLS
    assert rendered("{{ tools | tojson }}", [USER]) == "null"


def test_calls_are_read_in_the_format_of_the_template_when_tools_are_offered() -> None:
    for template, form in (("<tool_call>", HERMES), ("<|python_tag|>", LLAMA), ("none", None)):
        text = model_text(template)
        assert text.call_format(text.render([USER], TOOLS, 10, 100)) is form
        assert text.call_format(text.render([USER], None, 10, 100)) is None


def test_arguments_of_calls_are_objects() -> None:
    call = {"id": "1", "function": {"name": "find", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    template = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    assert rendered(template, [message]) == '{"a": 1}'


def test_a_prompt_without_room_for_its_answer_is_counted_and_marked() -> None:
    text = model_text("{{ messages[0].content }}")
    fits = text.render([{"role": "user", "content": "x" * 90}], TOOLS, 10, 100)
    assert (len(fits.tokens), fits.truncated, fits.length) == (90, False, 0)
    long = text.render([{"role": "user", "content": "x" * 91}], TOOLS, 10, 100)
    assert (len(long.tokens), long.truncated, long.length) == (90, True, 91)


def test_a_text_that_is_too_long_for_any_tokens_is_not_encoded() -> None:
    text = model_text("{{ raise_exception('encoded') }}")
    prompt = text.render([{"role": "user", "content": "x" * 401}], None, 10, 100)
    assert (prompt.tokens, prompt.truncated, prompt.length) == ((), True, 0)
    with pytest.raises(ValueError, match="encoded"):
        text.render([{"role": "user", "content": "x" * 400}], None, 10, 100)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].missing.part }}", "missing"),
        ("{{ messages[7].content + 'x' }}", "no element 7"),
    ],
)
def test_a_template_that_refuses_the_messages_is_quoted(template: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rendered(template, [USER])
