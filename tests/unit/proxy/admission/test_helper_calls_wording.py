"""Helper calls in the very words that clients sent from their screens, beside their real turns."""

import json
from typing import Any

import pytest

from proxy.admission.admit import helper_of
from proxy.dialects.messages import read_messages
from proxy.dialects.request import last_user_text

JSON = {"content-type": "application/json"}
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]

NAMING = (
    "You are Claude Code, Anthropic's official CLI for Claude.You are naming a coding session so "
    "the user can pick it out of a long list of sessions. The title is a name for what the session "
    "is about, not a sentence describing the task: a short noun phrase of two to five words"
)
NAMED = (
    "<session>\nPlease use the tool.\n</session>\n\nWrite the title in the predominant language of "
    "the session — a stray word or code token in another language doesn't change it, and neither "
    "does the English of these instructions."
)
MONITOR = (
    "You are a security monitor for autonomous AI coding agents.\n\n## Context\n\nThe agent you "
    "are monitoring is an **autonomous coding agent** with shell access, file system access, and "
    "API credentials."
)
TRANSCRIPT = (
    '<transcript>\n\n{"user":"Please use the tool."}\n\n{"Bash":"echo AJET-RAN > made.txt"}\n\n'
    "</transcript>\n\n\nErr on the side of blocking."
)
RECAP = (
    "The user stepped away and is coming back. Recap in under 40 words, 1-2 plain sentences, no "
    "markdown. Lead with the overall goal and current task, then the one next action. Skip "
    "root-cause narrative, fix internals, secondary to-dos, and em-dash tangents."
)
CODEX_TITLE = (
    "Generate a concise, single-line task title of at most 36 characters and under five words "
    "where possible. Start with an imperative verb. Do not answer the request.\n\nUser prompt:\n"
    "Remember: the word is ruby-codex"
)
OPENCODE = (
    "You are a context summarization agent. You are given a conversation between a user and an "
    "agent. Your goal is to produce a structured summary matching the format specified so another "
    "coding agent can continue the work."
)
PI = (
    "You are a context summarization assistant. Your task is to read a conversation between a user "
    "and an AI coding assistant, then produce a structured summary following the exact format "
    "specified."
)
QWEN = (
    "You are the component that summarizes a conversation when its context window is about to "
    "overflow. The summary you produce will become the agent's ONLY memory of everything that "
    "happened before this point."
)
CLASSIFIER = (
    "You are a security classifier for an AI coding agent operating in auto mode.\n\nGiven the "
    "conversation transcript and the next pending tool call, decide\nwhether the action should be "
    "ALLOWED or BLOCKED."
)
PROJECT = (
    "Please analyze the conversation history above and generate a comprehensive project summary in "
    "markdown format. Focus on extracting the most important context, decisions, and progress"
)
CLAUDE = (
    "You are Claude Code, Anthropic's official CLI for Claude.\nYou are an agent working with the "
    "user toward their goals, using your own judgment along the way.\n\nIMPORTANT: Assist with "
    "authorized security testing"
)
CODING = "You are Qwen Code, an interactive CLI agent developed by Alibaba Group."
BEFORE = [
    {"role": "user", "content": "Remember: the word is onyx2"},
    {"role": "assistant", "content": "Hello. AJET-DONE"},
]


def ask(
    user: str, system: str = "", *, tools: bool = False, stream: bool = True, blocks: bool = False
) -> str:
    """The kind of a request with this last user message."""
    content: Any = [{"type": "text", "text": user}] if blocks else user
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages += [*BEFORE, {"role": "user", "content": content}]
    body = {"model": "m", "messages": messages, **({"tools": TOOLS} if tools else {})}
    return helper_of(body, last_user_text(messages), stream=stream)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("wanted", "call"),
    [
        ("claude-title", {"user": NAMED, "system": NAMING}),
        ("guard", {"user": TRANSCRIPT, "system": MONITOR}),
        ("claude-recap", {"user": RECAP, "system": CLAUDE, "tools": True}),
        ("codex-title", {"user": CODEX_TITLE, "system": "<permissions instructions>"}),
        ("opencode-summary", {"user": "Here is the conversation so far:", "system": OPENCODE}),
        ("opencode-summary", {"user": "<conversation>\n\n</conversation>", "system": PI}),
        ("compaction", {"user": QWEN, "system": CODING, "tools": True, "blocks": True}),
        ("compression", {"user": "First, reason in your <analysis> block.", "system": QWEN}),
        ("guard", {"user": "## Pending tool call", "system": CLASSIFIER, "tools": True}),
        ("qwen-summary", {"user": PROJECT, "system": CODING, "blocks": True}),
    ],
)
def test_background_requests_of_applications_are_helper_calls(
    wanted: str, call: dict[str, Any], stream: bool
) -> None:
    assert ask(**call, stream=stream) == wanted


@pytest.mark.parametrize(
    "call",
    [
        {"user": "Please use the tool.", "system": CLAUDE, "tools": True},
        {"user": "This session is being continued from a previous", "system": CLAUDE},
        {"user": "What is the line 'You are naming a coding session' for?", "tools": True},
        {"user": "Please use the tool.", "system": NAMING, "tools": True},  # some agent of a kin
        {"user": "The user stepped away and is coming back. Who opens the door?"},
        {"user": f"Say what this asks for: {RECAP}"},
        {"user": CODEX_TITLE, "tools": True},
        {"user": "Generate a concise, single-line title for this article:"},
        {"user": f"Rate this prompt.\n{CODEX_TITLE}"},
        {"user": PROJECT, "system": CODING, "tools": True},
        {"user": "Please analyze the conversation history above and say who is right."},
        {"user": "Fix it.", "system": "You are a security analyst for an AI company."},
        {"user": CLASSIFIER},  # asked of an assistant, not made one's task
        {"user": "Fix it.", "system": f"You may be told: {CLASSIFIER}", "tools": True},
        {"user": "Is there a context summarization agent?", "system": "You are a context guide."},
    ],
)
def test_similar_user_texts_are_not_helper_calls(call: dict[str, Any]) -> None:
    assert ask(**call) == ""


def test_the_title_request_of_claude_code_is_a_helper_call() -> None:
    """Its system prompt has several blocks; the first is no part of the prompt."""
    identity, task = NAMING.split("Claude.", 1)
    texts = ("x-anthropic-billing-header: cc_version=2; cch=0af31;", f"{identity}Claude.", task)
    body = {
        "model": "ajet",
        "max_tokens": 32000,
        "system": [{"type": "text", "text": text} for text in texts],
        "messages": [{"role": "user", "content": NAMED}],
        "tools": [],
    }
    request = read_messages(json.dumps(body).encode(), JSON)
    assert helper_of(request.body, request.query) == "claude-title"


@pytest.mark.parametrize("cut", [12, 24, 36])
def test_texts_with_similar_beginnings_are_checked_quickly(cut: int) -> None:
    """Texts that are almost theirs, repeated: matched at the beginning alone."""
    for text in (QWEN, RECAP, CODEX_TITLE, PROJECT, MONITOR, OPENCODE):
        for joint in ("", "\n", " \n\n"):
            hostile = (text[:cut] + joint) * 20_000
            assert ask(hostile, hostile) == ""
            assert ask(" " * 2000 + hostile, "\n" * 2000 + hostile) == ""
