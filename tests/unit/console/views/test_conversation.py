"""The request of a group as entries, and their layout."""

from console.views.conversation import context_words, entries, folded_first, lay_out

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


def text_of(lines: object) -> str:
    assert isinstance(lines, list)
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


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
    assert entries({}) == []
    assert entries({"messages": "no", "tools": 3}) == []
    assert entries({"messages": [1, {"role": 7, "content": 8, "tool_calls": [None]}]})[0].text == ""


def test_long_entries_start_folded_and_long_conversations_at_the_last_question() -> None:
    result = entries(BODY)
    assert folded_first(result) == {4}
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 30
    many = entries({"messages": [*turns, {"role": "user", "content": "last"}]})
    assert folded_first(many) == set(range(60))


def test_a_match_is_marked_and_its_row_found() -> None:
    result = entries(BODY)
    page = lay_out(result, {4}, 60, at=1, search="TERSE")
    assert len(page.matches) == 1
    assert ("terse", "reverse") in page.lines[page.matches[0]]
    folded = lay_out(result, {4}, 60, search="sunny")
    assert folded.heads[4] in folded.matches, "a folded entry that holds it shows its head"
    assert "▸ result of get_weather" in text_of(folded.lines)


def test_hostile_text_stays_on_its_lines() -> None:
    result = entries({"messages": [{"role": "x\x1b[2J\n", "content": "a\x1b[31mb\rc"}]})
    shown = text_of(lay_out(result, set(), 40).lines)
    assert "\x1b" not in shown
    assert "\r" not in shown
