"""Tool calls in the text of an answer, format by format."""

from typing import Any

import pytest

from engine.torch.sampling.tool_calls import (
    HERMES,
    LLAMA,
    MISTRAL,
    XML,
    CallFormat,
    for_template,
    format_of,
)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "count": {"type": "integer"},
                    "share": {"type": "number"},
                    "exact": {"type": "boolean"},
                    "where": {"type": "object"},
                    "names": {"anyOf": [{"type": "array"}, {"type": "null"}]},
                    "mixed": {"type": ["string", "integer"]},
                },
            },
        },
    }
]


def parsed(form: CallFormat, text: str) -> tuple[str, list[tuple[str, str]]] | None:
    """Content and calls of an answer."""
    answer = form.parse(text, TOOLS)
    if answer is None:
        return None
    return answer.text, [(call.name, call.arguments) for call in answer.calls]


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{{ '[TOOL_CALLS] [' }}", MISTRAL),
        ("<tool_call>\\n<function=x>", XML),
        ('<tool_call>{"name": <function-name>}</tool_call>', HERMES),
        ("{{ '<|python_tag|>' + x }}", LLAMA),
        ('in the format {"name": function name, "parameters": dictionary of', LLAMA),
        ("{{ tools }} <start_function_call>", None),
        ("", None),
    ],
)
def test_the_format_follows_from_the_template(template: str, form: CallFormat | None) -> None:
    assert format_of(template) is form


@pytest.mark.parametrize("form", [HERMES, XML, LLAMA, MISTRAL])
@pytest.mark.parametrize("text", ["", "plain text", "a < b, {x}; [1]", '{"name": 1}', "{" * 5_000])
def test_text_without_a_call_is_text(form: CallFormat, text: str) -> None:
    assert form.parse(text, TOOLS) is None


HERMES_CASES = [
    (
        '<tool_call>\n{"name": "a", "arguments": {"count": 1.0,  "text":"\u00e9"}}\n</tool_call>',
        "",
        [("a", '{"count": 1.0,  "text":"\u00e9"}')],
    ),
    (
        'Let me see.\n\n<tool_call>{"name": "a", "arguments": {}}</tool_call>\n'
        '<tool_call>{"arguments": {"b": [1]}, "name": "b"}</tool_call> dropped',
        "Let me see.\n\n",
        [("a", "{}"), ("b", '{"b": [1]}')],
    ),
    ('<tool_call>{"name": "a"}</tool_call>', "", [("a", "{}")]),
    ('<tool_call>{"name": "a", "arguments": null}', "", [("a", "{}")]),
    ('<tool_call>{"name": "a", "arguments": "{\\"b\\": 1}"}', "", [("a", '{"b": 1}')]),
    (
        '<tool_call>{"name": "a", "arguments": {"b": "</tool_call>"}}',
        "",
        [("a", '{"b": "</tool_call>"}')],
    ),
]


@pytest.mark.parametrize(("text", "content", "calls"), HERMES_CASES)
def test_hermes(text: str, content: str, calls: list[tuple[str, str]]) -> None:
    assert parsed(HERMES, text) == (content, calls)
    assert parsed(XML, text) == (content, calls), "models of this template may write JSON too"


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>find</tool_call>",
        '<tool_call>{"name": "a", "arguments": {"b": }}</tool_call>',
        '<tool_call>{"name": "a", "arguments": {"b": NaN}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "a", "arguments": "b"}</tool_call>',
        '<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name"</tool_call>',
        '<tool_call>{"name": "a", "arguments": {}} and more</tool_call>',
        '<tool_call>{"name": "a", "arguments": {"b": ' + "[" * 100_000,
        "<tool_call><function=></function></tool_call>",
        "<tool_call><function=find<parameter=text</function></tool_call>",
    ],
)
def test_a_call_that_cannot_be_read_makes_the_answer_text(text: str) -> None:
    assert XML.parse(text, TOOLS) is None
    assert HERMES.parse(text, TOOLS) is None


FUNCTION = """<function=find>
<parameter=text>
two
lines
</parameter>
<parameter=count>
3
</parameter>
</function>"""
FOUND = [("find", '{"text": "two\\nlines", "count": 3}')]


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{FUNCTION}\n</tool_call>",
        FUNCTION,
        f"{FUNCTION}\n</tool_call>",
        FUNCTION.removesuffix("</function>"),
        FUNCTION.replace("\n</parameter>", ""),
    ],
)
def test_xml_with_and_without_its_ends(text: str) -> None:
    assert parsed(XML, f"I look.\n{text}") == ("I look.\n", FOUND)


def test_several_functions_of_xml() -> None:
    twice = f"<tool_call>{FUNCTION}</tool_call>\n<tool_call>{FUNCTION}</tool_call>"
    assert parsed(XML, twice) == ("", FOUND * 2)
    assert parsed(XML, f"<tool_call>{FUNCTION}{FUNCTION}</tool_call>") == ("", FOUND * 2)
    assert parsed(XML, "<tool_call><function=now></function></tool_call>") == ("", [("now", "{}")])


@pytest.mark.parametrize(
    ("key", "value", "argument"),
    [
        ("text", "7", '"7"'),
        ("text", "null", "null"),
        ("count", "7", "7"),
        ("count", "seven", '"seven"'),
        ("share", "0.50", "0.5"),
        ("exact", "True", "true"),
        ("exact", "maybe", '"maybe"'),
        ("where", '{"a": [1, "x"]}', '{"a": [1, "x"]}'),
        ("names", "[1]", "[1]"),
        ("mixed", "7", '"7"'),
        ("unknown", "7", '"7"'),
    ],
)
def test_arguments_of_xml_have_the_types_of_the_tool(key: str, value: str, argument: str) -> None:
    text = f"<tool_call><function=find><parameter={key}>{value}</parameter></function></tool_call>"
    assert parsed(XML, text) == ("", [("find", f'{{"{key}": {argument}}}')])
    unknown = text.replace("find", "other")
    assert XML.parse(unknown, []) is not None


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "find", "parameters": {"text": "a; b"}}',
        '\n<|python_tag|>{"name": "find", "parameters": {"text": "a; b"}}',
        '<|python_tag|> {"type": "function", "name": "find", "arguments": {"text": "a; b"}} ;',
    ],
)
def test_llama(text: str) -> None:
    assert parsed(LLAMA, text) == ("", [("find", '{"text": "a; b"}')])


def test_several_calls_of_llama() -> None:
    text = '{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"c": {"d": {"e": 1}}}}'
    assert parsed(LLAMA, text) == ("", [("a", "{}"), ("b", '{"c": {"d": {"e": 1}}}')])


@pytest.mark.parametrize(
    "text",
    [
        'I call {"name": "find", "parameters": {}}',
        '{"name": "find", "parameters": {}} is the call',
        '{"name": "Bob", "age": 7}',
        "<|python_tag|>print(1)",
        "<|python_tag|>",
        '{"name": "find", "parameters": {}',
    ],
)
def test_other_answers_of_llama_are_text(text: str) -> None:
    assert LLAMA.parse(text, TOOLS) is None


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (
            '[TOOL_CALLS] [{"name": "a", "arguments": {"b": 1}}, {"name": "c", "arguments": {}}]',
            "",
            [("a", '{"b": 1}'), ("c", "{}")],
        ),
        ('So: [TOOL_CALLS][{"name": "a", "arguments": {}}] so', "So: ", [("a", "{}")]),
        ('[TOOL_CALLS]{"name": "a", "arguments": {}}', "", [("a", "{}")]),
        (
            '[TOOL_CALLS]a{"b": "}"}[TOOL_CALLS]c[CALL_ID]123456789[ARGS]{"d": []}',
            "",
            [("a", '{"b": "}"}'), ("c", '{"d": []}')],
        ),
        ('[TOOL_CALLS]a[ARGS]{"b": 1}', "", [("a", '{"b": 1}')]),
    ],
)
def test_mistral(text: str, content: str, calls: list[tuple[str, str]]) -> None:
    assert parsed(MISTRAL, text) == (content, calls)


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] []",
        "[TOOL_CALLS] [1]",
        '[TOOL_CALLS] [{"name": "a", "arguments": {}}',
        "[TOOL_CALLS] a",
        '[TOOL_CALLS]{"a": 1}',
        "[TOOL_CALLS]a{'b': 1}",
        '[{"name": "a", "arguments": {}}]',
    ],
)
def test_other_answers_of_mistral_are_text(text: str) -> None:
    assert MISTRAL.parse(text, TOOLS) is None


def _called(arguments: Any, name: str = "call_0123456789abcdef") -> dict[str, Any]:
    function = {"name": "find", "arguments": arguments}
    call = {"id": name, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [('{"a": 1}', {"a": 1}), ("", {}), (None, {}), ({"a": 1}, {"a": 1}), ("[1]", [1])],
)
def test_a_template_gets_arguments_as_objects(arguments: Any, given: Any) -> None:
    original = _called(arguments)
    (message,) = for_template([original], HERMES)
    assert message["tool_calls"][0]["function"] == {"name": "find", "arguments": given}
    assert message["tool_calls"][0]["id"] == "call_0123456789abcdef"
    assert original == _called(arguments), "the request stays as it is"


def test_arguments_that_are_not_json_are_refused() -> None:
    with pytest.raises(ValueError, match="arguments of a tool call are not JSON"):
        for_template([_called("{")], None)


def test_empty_lists_of_calls_are_left_out() -> None:
    several: tuple[Any, ...] = ([], None, "x")
    for calls in several:
        message = {"role": "assistant", "content": "a", "tool_calls": calls}
        assert for_template([message], None) == [{"role": "assistant", "content": "a"}]
    odd = {"role": "assistant", "content": "", "tool_calls": [7]}
    assert for_template([odd], None) == [odd]


def test_mistral_gets_ids_of_nine_letters() -> None:
    result = {"role": "tool", "tool_call_id": "call_0123456789abcdef", "content": "3"}
    called, answered = for_template([_called("{}"), result], MISTRAL)
    assert called["tool_calls"][0]["id"] == answered["tool_call_id"] == "789abcdef"
    (short,) = for_template([_called("{}", "c-1")], MISTRAL)
    assert short["tool_calls"][0]["id"] == "0000000c1"
