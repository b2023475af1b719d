"""Conversations found by their content, as real clients send them back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admission.sessions import MAX_KEYS, Conversations, normal_form

Message = dict[str, Any]
SYSTEM = {"role": "system", "content": "You are a coding agent.\n\nBe brief."}
ASKED = {"role": "user", "content": "List the files,\nplease."}
CALL = {
    "id": "chatcmpl-tool-688af0c1",
    "type": "function",
    "function": {"name": "bash", "arguments": '{"command": "ls -la", "dir": "/tmp"}'},
}
ANSWER = {
    "role": "assistant",
    "content": None,
    "reasoning": "The user wants files.",
    "tool_calls": [CALL],
}
RESULT = {"role": "tool", "tool_call_id": CALL["id"], "content": "a.txt\nb.txt"}


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def assistant(text: Any) -> Message:
    return {"role": "assistant", "content": text}


def opencode() -> tuple[list[Message], list[Message]]:
    again = {**CALL, "function": {"name": "bash", "arguments": '{"command":"ls -la","dir":"/tmp"}'}}
    back = {"role": "assistant", "content": "", "tool_calls": [again]}
    back["reasoning_content"] = "The user wants files."
    return [SYSTEM, ASKED], [SYSTEM, ASKED, back, RESULT]


def claude() -> tuple[list[Message], list[Message]]:
    blocks = [{"type": "text", "text": "You are a coding agent."}, {"type": "text", "text": "Be"}]
    first = [{"role": "system", "content": blocks}, user([{"type": "text", "text": "List."}])]
    later: list[Message] = [
        {"role": "system", "content": "You are a coding agent, as one string. Be brief."},
        user("List."),
        {"role": "system", "content": "told in between"},
        ANSWER,
        RESULT,
    ]
    return first, later


def openclaw() -> tuple[list[Message], list[Message]]:
    back = {"role": "assistant", "tool_calls": [{**CALL, "id": "chatcmpltool688af0c1"}]}
    result = {**RESULT, "tool_call_id": "chatcmpltool688af0c1"}
    first = [SYSTEM, ASKED, user([{"type": "text", "text": "It is 10:00. Tools: 11"}])]
    later: list[Message] = [
        SYSTEM,
        ASKED,
        back,
        result,
        user([{"type": "text", "text": "It is 10:01. Tools: 11"}]),
    ]
    return first, later


def qwen() -> tuple[list[Message], list[Message]]:
    result = {**RESULT, "content": [{"type": "text", "text": "a.txt\nb.txt"}]}
    back = {**ANSWER, "reasoning_content": "The user wants files.", "content": ""}
    return [SYSTEM, ASKED], [SYSTEM, ASKED, back, result]


def agentscope() -> tuple[list[Message], list[Message]]:
    reminder = {**user([{"type": "text", "text": "<system-reminder>10:00"}]), "name": "system"}
    first = [SYSTEM, {**ASKED, "name": "user"}, reminder]
    return first, [*first, {**ANSWER, "name": "Friday"}, {**RESULT, "name": "bash"}]


@pytest.fixture
def known() -> Conversations:
    return Conversations()


@pytest.mark.parametrize("client", [opencode, claude, openclaw, qwen, agentscope])
def test_a_turn_is_matched_to_the_one_before(client: Any) -> None:
    first, later = client()
    known = Conversations()
    other = known.match([SYSTEM, user("Something else.")])
    one = known.match(first)
    known.add_answer(one.session, ANSWER)
    two = known.match(later)
    assert (one.turn, two.turn) == (1, 2)
    assert two.session == one.session != other.session
    assert one.session.startswith("c-")


@pytest.mark.parametrize("client", [opencode, claude, openclaw, qwen, agentscope])
def test_a_turn_is_matched_although_its_answer_came_back_changed(client: Any) -> None:
    first, later = client()
    known = Conversations()
    one = known.match(first)
    known.add_answer(one.session, assistant("something the client did not keep"))
    assert known.match(later).session == one.session


def test_a_last_message_that_moves_over_many_turns(known: Conversations) -> None:
    history: list[Message] = [SYSTEM, ASKED]
    result = []
    for number in range(30):
        result.append(known.match([*history, user(f"now: {number}")]))
        answer = assistant(f"step {number}")
        known.add_answer(result[-1].session, answer)
        history += [answer, {"role": "tool", "content": f"result {number}"}]
    assert len({place.session for place in result}) == 1
    assert [place.turn for place in result] == list(range(1, 31))


def test_equal_beginnings_are_distinguished_by_their_answers(known: Conversations) -> None:
    first = known.match([SYSTEM, ASKED])
    known.add_answer(first.session, assistant("I see a.txt."))
    second = known.match([SYSTEM, ASKED])
    known.add_answer(second.session, assistant("I see b.txt."))
    assert first.session != second.session  # a beginning begins
    more = user("And now?")
    assert known.match([SYSTEM, ASKED, assistant("I see a.txt."), more]).session == first.session
    assert known.match([SYSTEM, ASKED, assistant("I see b.txt."), more]).session == second.session


def test_rows_with_the_same_examples_are_separate_conversations() -> None:
    shots = [
        SYSTEM,
        user("great film"),
        assistant("positive"),
        user("bad film"),
        assistant("negative"),
    ]
    known = Conversations()
    places = []
    for number in range(20):
        places.append(known.match([*shots, user(f"film {number}")], trace="f" * 32))
        known.add_answer(places[-1].session, assistant("positive"))
    assert len({place.session for place in places}) == 20
    assert {place.turn for place in places} == {1}


def test_rows_with_examples_and_two_last_messages_are_separate_conversations() -> None:
    shots = [user("great film"), assistant("positive"), user("From a newspaper:")]
    known = Conversations()
    places = [known.match([*shots, user(f"film {number}")]) for number in range(5)]
    assert len({place.session for place in places}) == 5


def test_a_history_that_was_cut_is_found_by_a_long_answer(known: Conversations) -> None:
    long = assistant("A long answer that tells this conversation from every other one.")
    one = known.match([SYSTEM, ASKED])
    known.add_answer(one.session, assistant("short"))
    two = known.match([SYSTEM, ASKED, assistant("short"), user("more")])
    known.add_answer(two.session, long)
    cut = [SYSTEM, ASKED, user("[a summary stands here]"), long, user("Go on.")]
    assert known.match(cut).session == one.session
    strange = [SYSTEM, user("Other task."), user("[a summary stands here]"), long, user("Go on.")]
    assert known.match(strange).session != one.session


def test_a_trace_helps_an_agent_whose_history_was_rewritten(known: Conversations) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    one = known.match([SYSTEM, ASKED], trace=trace)
    rewritten = [SYSTEM, ASKED, user("compacted"), assistant("x"), {"role": "tool", "content": "y"}]
    assert known.match(rewritten, trace="0" * 32).session != one.session
    known = Conversations()
    one = known.match([SYSTEM, ASKED], trace=trace)
    assert known.match(rewritten, trace=trace).session == one.session


def test_senders_never_share_a_conversation(known: Conversations) -> None:
    one = known.match([ASKED], "alice")
    assert known.match([ASKED, ANSWER, RESULT], "bob").session != one.session
    assert known.match([ASKED, ANSWER, RESULT], "alice").session == one.session


def test_find_does_not_change_the_table(known: Conversations) -> None:
    one = known.match([ASKED])
    notes: list[Message] = [
        {"role": "system", "content": "memory"},
        ASKED,
        ANSWER,
        RESULT,
        user("extract"),
    ]
    assert known.find(notes) == one.session
    assert known.find([user("unknown")]) == ""
    assert known.match([ASKED, ANSWER, RESULT]).turn == 2
    assert len(known) == 1


def test_the_table_is_bounded() -> None:
    known = Conversations(cap=10)
    keep = known.match([user("keep")])
    history = [user("keep")]
    for number in range(200):
        known.match([user(f"q{number}")])
        if number % 5 == 0:
            history += [assistant(f"a{number}"), user(f"u{number}")]
            assert known.match(history).session == keep.session
    assert len(known) == 10
    assert len(known._by_key) <= 10 * MAX_KEYS


def test_prompts_without_users_or_messages(known: Conversations) -> None:
    assert known.match([]).turn == 1
    assert known.match([SYSTEM]).session != known.match([SYSTEM]).session
    known.add_answer("c-unknown", assistant("x"))


def test_long_texts_are_compared_by_their_ends() -> None:
    long = "word " * 4000
    assert normal_form(user(long)) == normal_form(user([{"type": "text", "text": long}]))
    assert normal_form(user(long)) != normal_form(user("other " + long))
    assert normal_form(user(long)) != normal_form(user(long + "other"))
    assert len(normal_form(user(long))) < 5000


texts = st.text(max_size=30)
arguments = st.dictionaries(st.text(max_size=8), st.text(max_size=8) | st.integers(), max_size=4)


@pytest.mark.slow
@given(texts, arguments, st.text(max_size=12), st.text(max_size=12))
def test_changes_by_clients_do_not_change_the_normal_form(
    text: str, call_arguments: dict[str, Any], one_id: str, other_id: str
) -> None:
    def answer(content: Any, call_id: str, words: str, **more: Any) -> bytes:
        call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": words}}
        return normal_form({"role": "assistant", "content": content, "tool_calls": [call], **more})

    ours = answer(text, one_id, json.dumps(call_arguments), reasoning="hm")
    blocks = [{"type": "text", "text": text}]
    again = json.dumps(
        dict(reversed(call_arguments.items())), separators=(",", ":"), ensure_ascii=False
    )
    assert ours == answer(text, other_id, again)
    assert ours == answer(blocks, other_id, json.dumps(call_arguments, indent=2), name="x")
    assert ours != answer(text + "!", one_id, json.dumps(call_arguments))
    assert ours != answer(text, one_id, json.dumps({**call_arguments, "another": 1}))


messages = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant", "tool", "system", "developer", "odd"))},
    optional={
        "content": st.none() | texts | st.lists(st.fixed_dictionaries({"text": texts})),
        "tool_calls": st.none()
        | st.lists(
            st.fixed_dictionaries({}, optional={"function": st.none() | st.just({"arguments": 3})})
        ),
    },
)


@pytest.mark.slow
@given(st.lists(messages, max_size=8), st.lists(messages, max_size=4))
def test_a_conversation_keeps_its_session(first: list[Message], more: list[Message]) -> None:
    known = Conversations()
    one = known.match(first)
    known.add_answer(one.session, assistant("This is the answer."))
    two = known.match([*first, assistant("This is the answer."), *more])
    assert two.session == one.session
    assert two.turn == 2


def test_a_repeated_prompt_starts_a_new_conversation_each_time(known: Conversations) -> None:
    """Many askers may send the same one; a session's cap is for those who go on."""
    prefilled = [user("Go on:"), assistant("Once upon a time")]
    prompts: list[list[Message]] = [[assistant("hello")], prefilled, [SYSTEM, ASKED, ANSWER]]
    for prompt in prompts:
        result = set()
        for _ in range(50):
            place = known.match(prompt)
            known.add_answer(
                place.session, assistant("a long answer that is always the same, word by word")
            )
            result.add(place.session)
        assert len(result) == 50
    last = known.match(prefilled)
    known.add_answer(last.session, assistant("there was"))
    assert (
        known.match([*prefilled, assistant("there was"), user("And then?")]).session == last.session
    )


def test_a_prompt_that_ends_with_the_answer_continues_the_conversation(
    known: Conversations,
) -> None:
    first = known.match([ASKED])
    known.add_answer(first.session, assistant("one, two"))
    assert known.match([ASKED, assistant("one, two")]).session == first.session


# --- the same once more -------------------------------------------------------------------------

TASK = user("Please use the tool.")
RAN = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call-1",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"command": "echo AJET-RAN"}'},
        }
    ],
}
TOLD = {"role": "tool", "tool_call_id": "call-1", "content": "AJET-RAN"}
SUM = assistant("The tool said it: AJET-RAN. That is all there is to tell.")
STEPS = (([TASK], RAN), ([TASK, RAN, TOLD], SUM), ([TASK, RAN, TOLD, SUM, user("thanks")], SUM))
"""The prompts of a conversation, word by word the same each time, and their answers."""


def step(known: Conversations, number: int) -> tuple[str, int]:
    prompt, answer = STEPS[number]
    place = known.match(prompt)
    known.add_answer(place.session, answer)
    return place.session, place.turn


def test_a_repeated_conversation_is_a_new_one_each_time(known: Conversations) -> None:
    """As the passes over a dataset whose tool call repeats."""
    passes = [[step(known, number) for number in range(len(STEPS))] for _ in range(4)]
    for pass_ in passes:
        assert [turn for _, turn in pass_] == [1, 2, 3]
        assert len({session for session, _ in pass_}) == 1
    assert len({pass_[0][0] for pass_ in passes}) == 4


def test_a_repeated_conversation_is_matched_although_its_answers_come_back_changed(
    known: Conversations,
) -> None:
    for _ in range(3):
        one = known.match([SYSTEM, TASK])
        known.add_answer(one.session, assistant("something the client did not keep"))
        assert known.match([SYSTEM, TASK, RAN, TOLD]).session == one.session


@pytest.mark.slow
@given(st.lists(st.sampled_from(range(len(STEPS))), max_size=40))
def test_no_conversation_contains_the_same_prompt_twice(order: list[int]) -> None:
    """Whatever is held at once, repeated or begun in the middle."""
    known = Conversations()
    turns = [(step(known, number)[0], number) for number in order]
    assert len(set(turns)) == len(turns)
