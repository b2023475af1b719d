"""The request of a group as entries, and their layout."""

from console.screens.group.request import context_words, entries, entry_lines, folded_first, matches
from tests.support.groups import text_of

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
}
BODY = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Weather of a city",
                "parameters": {"type": "object"},
            },
        }
    ],
    "messages": [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny\n" * 20},
        {"role": "assistant", "content": "Sunny.", "reasoning": "It says sunny."},
        {"role": "user", "content": [{"type": "text", "text": "And Oslo?"}]},
    ],
}


def test_each_part_of_a_request_is_an_entry() -> None:
    result = entries(BODY)
    assert [(one.kind, one.title) for one in result] == [
        ("tools", "1 tool"),
        ("system", "system"),
        ("user", "user"),
        ("call", "assistant calls get_weather"),
        ("result", "result of get_weather"),
        ("reasoning", "assistant, reasoning"),
        ("assistant", "assistant"),
        ("user", "user"),
    ]
    assert '"city": "Rome"' in result[3].text
    assert result[-1].text == "And Oslo?"
    assert context_words(result, 3) == "turn 3, system prompt of 3 words, 1 tool, 1 tool call"


def test_invalid_messages_are_skipped() -> None:
    assert (entries({}), entries({"messages": "no", "tools": 3})) == ([], [])
    assert entries({"messages": [1, {"role": 7, "content": 8, "tool_calls": [None]}]})[0].text == ""


def test_long_entries_start_folded_and_long_conversations_at_the_last_question() -> None:
    result = entries(BODY)
    assert folded_first(result) == {4}
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 30
    many = entries({"messages": [*turns, {"role": "user", "content": "last"}]})
    assert folded_first(many) == set(range(60))


def test_a_match_is_marked_and_its_row_found() -> None:
    system, result = entries(BODY)[1], entries(BODY)[4]
    lines = entry_lines(system, False, 60, "terse")
    (row,) = matches([system], [range(len(lines))], lines, "terse")
    assert ("terse", "reverse") in lines[row]
    folded = entry_lines(result, True, 60, "sunny")
    assert "▸ result of get_weather" in text_of(folded)
    assert matches([result], [range(1)], folded, "sunny") == [0], "its head stands for its text"


def test_hostile_text_stays_on_its_lines() -> None:
    (entry,) = entries({"messages": [{"role": "x\x1b[2J\n", "content": "a\x1b[31mb\rc"}]})
    shown = text_of(entry_lines(entry, False, 40))
    assert "\x1b" not in shown
    assert "\r" not in shown
