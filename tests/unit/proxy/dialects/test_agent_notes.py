"""What a request is known by, when an agent has written into its user's messages."""

import json
from typing import Any

import pytest

from proxy.admission.admit import helper_of
from proxy.admission.sessions import Conversations
from proxy.dialects.chat.request import read_request
from proxy.dialects.client_marks import own_words
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import RESPONSES

REMINDER = "<system-reminder>\nThe time is noon.\n</system-reminder>"
OPENCLAW = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
CODEX = "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"
STAMP = "[Sun 2026-11-22 03:41 UTC] "
RUNTIME = (
    "Runtime: agent=main | session=agent:main:explicit:s2 | sessionId=s2 | host=vm | "
    "os=Linux 6.18.44 (x64) | node=v26.10.0 | active_node=unknown | model=ajet/ajet | "
    "default_model=ajet/ajet | shell=bash"
)
HEADERS = {"content-type": "application/json"}


@pytest.mark.parametrize("aside", [REMINDER, OPENCLAW, CODEX])
def test_a_note_is_removed(aside: str) -> None:
    assert own_words(aside) == ""
    assert own_words(f"{aside}\nSay hello.\n{aside}") == "Say hello."


@pytest.mark.parametrize(
    "text", ["", " as it is ", "what is <system-reminder>?", "</system-reminder> <system-reminder>"]
)
def test_a_text_without_a_note_stays(text: str) -> None:
    assert own_words(text) == text


def test_an_unclosed_note_stays() -> None:
    assert own_words(f"{REMINDER} and <system-reminder> so on") == "and <system-reminder> so on"


@pytest.mark.parametrize(
    "piece", ["<system-reminder>", STAMP[:-1], "[Sun ", f"{RUNTIME} |", "Runtime: agent=", "\n \n."]
)
def test_many_opening_tags_are_handled_quickly(piece: str) -> None:
    text = "-" + piece * 200_000
    assert own_words(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{STAMP}Please use the tool.\n\n{RUNTIME}", "Please use the tool."),
        (f"{STAMP}And which word was it?", "And which word was it?"),
        (f"Say hello.\n\n{RUNTIME}\n", "Say hello."),
        ("[Mon 2026-01-26 20:30 GMT+5:30] Two\nlines.", "Two\nlines."),
        ("[Mon 2026-01-26 20:30 America/New_York] Say hello.", "Say hello."),
        (f"{STAMP}{STAMP}Twice.", f"{STAMP}Twice."),
        (f"{OPENCLAW}\n{STAMP}Say hello.\n\n{RUNTIME}", "Say hello."),
        (f"{STAMP}\n\n{RUNTIME}", ""),
        (RUNTIME, ""),
    ],
)
def test_the_text_that_openclaw_adds_to_a_message_is_removed(text: str, words: str) -> None:
    assert own_words(text) == words


@pytest.mark.parametrize(
    "text",
    [
        "[2026-11-22 03:41] a line of a log ",
        "[Sun] 2026-11-22 03:41 UTC it rained",
        "[Sun 2026-11-22 03:41 UTC]without a space",
        "[Sun 2026-11-22 03:41 of all the days that there are] x",
        f"What is {STAMP}for?",
        f"What does this say?\n{RUNTIME}\nIs it new?",
        f"What is '{RUNTIME}'?",
        "Runtime: 5 s\n",
    ],
)
def test_similar_text_stays(text: str) -> None:
    assert own_words(text) == text


def test_the_query_of_openclaw_is_the_users_text_and_the_prompt_stays() -> None:
    result = [
        user(f"{STAMP}Please use the tool.\n\n{RUNTIME}"),
        user([{"type": "text", "text": OPENCLAW}]),
    ]
    data = json.dumps({"model": "m", "messages": result}).encode()
    request = read_request(data, HEADERS, "host")
    assert request.query == "Please use the tool."
    assert request.messages[0] == result[0]


def test_openclaw_sessions_with_the_same_words_are_distinguished() -> None:
    """By the text around them, which is the same in each turn."""
    conversations = Conversations()
    prompts = [user(f"{STAMP}Say hello.\n\n{RUNTIME.replace('s2', name)}") for name in ("s1", "s2")]
    places = [conversations.match([prompt], "key", "") for prompt in prompts]
    for prompt, place in zip(prompts, places, strict=True):
        more = [prompt, {"role": "assistant", "content": "Hi."}, user(f"{STAMP}And now?")]
        assert conversations.match(more, "key", "").session == place.session


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_the_query_of_a_chat_has_no_notes() -> None:
    result = [user("Say hello."), user([{"type": "text", "text": OPENCLAW}])]
    data = json.dumps({"model": "m", "messages": result}).encode()
    request = read_request(data, HEADERS, "host")
    assert request.query == "Say hello."
    assert request.messages[-1]["content"] == result[-1]["content"]


def test_the_last_message_is_the_query_if_the_user_wrote_nothing() -> None:
    data = json.dumps({"model": "m", "messages": [user(REMINDER)]}).encode()
    assert read_request(data, HEADERS, "host").query == REMINDER


def test_the_query_of_a_messages_request_has_no_notes() -> None:
    blocks = [{"type": "text", "text": text} for text in (REMINDER, "Say hello.")]
    data = json.dumps({"model": "m", "max_tokens": 9, "messages": [user(blocks)]}).encode()
    assert MESSAGES.read(data, HEADERS, "host").query == "Say hello."


@pytest.mark.parametrize("lines", [[CODEX, "Say hello."], ["Say hello.", REMINDER]])
def test_the_query_of_a_response_has_no_notes(lines: list[str]) -> None:
    data = json.dumps({"model": "m", "input": [user(text) for text in lines]}).encode()
    assert RESPONSES.read(data, HEADERS, "host").query == "Say hello."


def test_a_conversation_is_matched_although_its_notes_change() -> None:
    """As qwen-code rewrites its notes about the day and its skills."""
    conversations = Conversations()
    first = [user([{"type": "text", "text": text} for text in (REMINDER, "Note a word.")])]
    later = [
        user([{"type": "text", "text": text} for text in (CODEX, "Note a word.")]),
        {"role": "assistant", "content": "Noted. What is the word that you have in mind?"},
        user([{"type": "text", "text": text} for text in (REMINDER, "Which word?")]),
    ]
    session = conversations.match(first, "key", "").session
    conversations.match([user("Something else.")], "key", "")
    assert conversations.match(later, "key", "").session == session


@pytest.mark.parametrize(
    ("user_text", "rule"),
    [
        ("### Task:\nPredict 3-5 useful messages this user might send", "openwebui-follow-ups"),
        ("### Task:\nSummarize the conversation history that will be compacted out", "compaction"),
    ],
)
def test_background_requests_of_open_webui_are_helper_calls(user_text: str, rule: str) -> None:
    body = {"messages": [user(user_text)]}
    assert helper_of(body, user_text) == rule
