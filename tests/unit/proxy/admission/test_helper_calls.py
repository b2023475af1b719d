"""Helper calls in the very words of their clients, and requests that only resemble one."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admission.admit import RULES, Rule, helper_of
from proxy.dialects.messages import read_messages
from proxy.dialects.request import last_user_text

CODING = "You are Qwen Code, an interactive CLI agent developed by Alibaba Group."


TAGS = (
    "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history, along "
    "with 1-3 more specific subtopic tags.\n\n### Guidelines:\n- Start with high-level domains\n\n"
    '### Output:\nJSON format: { "tags": ["tag1"] }\n\n### Chat History:\n<chat_history>\nUSER: hi'
)


TITLE = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n"
    "### Guidelines:\n- Be accurate\n### Output:\nJSON format\n### Chat History:\n<chat_history>"
)


FOLLOW = (
    "### Task:\nSuggest 3-5 relevant follow-up questions or prompts that the user might naturally "
    "ask next in this conversation as a **user**, based on the chat history.\n### Output:\nJSON"
)


RAG = (
    "### Task:\nRespond to the user query using the provided context, incorporating inline "
    "citations.\n\n### Guidelines:\n- If you don't know the answer, say so.\n<context></context>"
)


COMPACT = (
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read, Bash.\n\n"
    "Your task is to create a detailed summary of the conversation so far, paying close attention"
)


TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
BEFORE = [
    {"role": "user", "content": "Remember: the word is onyx2"},
    {"role": "assistant", "content": "Hello. AJET-DONE"},
]
TOOLED = {"tools": True}
WHOLE = {"stream": False}
AGENT = {"agent": True}


def blocks(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def ask(
    user: Any,
    system: Any = None,
    *,
    tools: bool = False,
    stream: bool = True,
    agent: bool = False,
    later: bool = False,
) -> str:
    """The kind of a request with this last user message; `later` in a conversation."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages += [*(BEFORE if later else ()), {"role": "user", "content": user}]
    body = {"model": "m", "messages": messages, **({"tools": TOOLS} if tools else {})}
    return helper_of(body, last_user_text(messages), stream=stream, agent=agent)


@pytest.mark.parametrize(
    ("wanted", "user", "system", "how"),
    [
        (
            "opencode-title",
            "Generate a title for this conversation:\n",
            "You are a title generator. You output ONLY a thread title. No more.",
            {},
        ),
        (
            "opencode-summary",
            "Provide a detailed prompt for continuing our conversation above.",
            "You are a helpful AI assistant tasked with summarizing conversations.",
            {},
        ),
        (
            *("opencode-recap", "Summarize what was done in this conversation. Write like"),
            *(None, {}),
        ),
        ("openwebui-follow-ups", FOLLOW, None, WHOLE),
        ("openwebui-title", TITLE, None, WHOLE),
        ("openwebui-tags", TAGS, None, WHOLE),
        (
            "openwebui-search",
            "### Task:\nAnalyze the chat history to determine the necessity of generating search "
            "queries, in the given language.",
            *(None, WHOLE),
        ),
        (
            "openwebui-image",
            "### Task:\nGenerate a detailed prompt for am image generation task",
            *(None, WHOLE),
        ),
        (
            *("memory", "hi"),
            "You are now acting as the managed memory extraction subagent for an AI coding "
            "assistant.\n\nThe recent conversation history is",
            TOOLED,
        ),
        (
            "memory-turn",
            "You are now acting as the memory extraction subagent. Analyze the most recent ~4 "
            "messages above",
            *("You are Claude Code", TOOLED),
        ),
        (
            *("claude-topic", "fix the bug"),
            "Analyze if this message indicates a new conversation topic. If it does,",
            {},
        ),
        (
            "claude-title-turn",
            "Please write a 5-10 word title for the following conversation:\n\nUser: x",
            *(None, {}),
        ),
        ("claude-suggestion", "[SUGGESTION MODE: Suggest what", None, TOOLED),
        ("claude-page", "\nWeb page content:\n---\nHello", None, {}),
        ("claude-probe", "quota", None, {}),
        ("compaction", COMPACT, "You are Claude Code", TOOLED),
        (
            *("compaction", "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff"),
            *(None, {}),
        ),
        (
            *("compression", "First, reason in your scratchpad."),
            *("You are the component that summarizes internal chat history into a", {}),
        ),
        (
            "next-speaker",
            "Analyze *only* the content and structure of your immediately preceding",
            *(None, {}),
        ),
        (
            *("commit-message", "diff --git a b"),
            "You are an expert software engineer that generates concise, one-line Git commit "
            "messages based on the provided diffs.",
            {},
        ),
        (
            *("commit-message", "diff"),
            "You are a helpful assistant that generates informative git commit messages based on "
            "git diffs output.",
            {},
        ),
        (
            *("aider-summary", "# USER\nhi"),
            *("*Briefly* summarize this partial conversation about programming.", {}),
        ),
        (
            "openclaw-slug",
            "Based on this conversation, generate a short 1-2 word filename slug (lower",
            *(None, {}),
        ),
        (
            "librechat-title",
            "Provide a concise, 5-word-or-less title for the conversation, using",
            *(None, {}),
        ),
        ("beside-an-agent", "Please write a short title for our chat.", None, AGENT),
        ("beside-an-agent-system", "hello", "Summarize the thread. Reply with a summary", AGENT),
    ],
)
def test_each_helper_call_matches_its_rule(
    wanted: str, user: str, system: str | None, how: dict[str, bool]
) -> None:
    assert ask(user, system, **how) == wanted


@pytest.mark.parametrize(
    "call",
    [
        {"user": "What is the capital of France?"},
        {"user": "Summarize this conversation:\nA: hi\nB: hello"},  # a dataset of dialogues
        {"user": "Write a title for this article: ..."},
        {"user": "Generate a title for this conversation:"},
        {"user": "hi", "system": "You are a headline writer."},
        {"user": RAG, "stream": False},  # the user's own question about a document
        {"user": RAG},
        {"user": TITLE, "stream": True},
        {"user": TITLE, "stream": False, "tools": True},
        {"user": "fix the bug", "system": CODING, "tools": True},
        {"user": "Write a summary of the logs.", "system": CODING, "tools": True, "agent": True},
        {"user": "fix the bug", "agent": True},
        {"user": "Tell me how you are a title generator", "system": "You are an assistant."},
        {"user": "What is my quota of holidays?"},
        {"user": ""},
    ],
)
def test_other_calls_match_no_rule(call: dict[str, Any]) -> None:
    assert ask(**call) == ""


def test_the_system_prompt_may_be_a_list_of_blocks_or_a_developers() -> None:
    text = "You are a title generator. You output ONLY a thread title."
    assert ask("x", [{"type": "text", "text": text}]) == "opencode-title"
    body = {"messages": [{"role": "developer", "content": text}, {"role": "user", "content": "x"}]}
    assert helper_of(body, "x") == "opencode-title"


def test_a_later_system_message_is_ignored() -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "You are a title generator."},
    ]
    assert helper_of({"messages": messages}, "hi") == ""


def test_each_rule_has_a_client_and_a_reason() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.client
        assert rule.why
        assert rule.system or rule.user


@pytest.mark.slow
@given(st.text(max_size=400), st.text(max_size=200), st.booleans())
def test_any_text_can_be_checked(user: str, system: str, agent: bool) -> None:
    assert helper_of({"messages": [{"role": "system", "content": system}]}, user, agent=agent) in {
        "",
        *(rule.name for rule in RULES),
    }


def test_long_texts_are_checked_quickly() -> None:
    for piece in ("generate ", "generate a\n", "- \n", " \n", "you are "):
        text = piece * 20_000
        assert ask(text, text, agent=True) == ""


def outside_groups(pattern: str) -> str:
    """What of a pattern is in no group and no class; escaped characters are left out."""
    left, depth = "", 0
    for char in re.sub(r"\\.|\[(?:\\.|[^\]\\])+\]", "", pattern):
        depth -= char == ")"
        left += char if depth == 0 else ""
        depth += char == "("
    return left


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.user.startswith("^")])
def test_an_anchored_pattern_is_anchored_in_all_alternatives(rule: Rule) -> None:
    """It is matched at the beginning alone: an alternative outside a group would be lost."""
    assert "|" not in outside_groups(rule.user)


def test_an_alternative_outside_a_group_is_detected() -> None:
    assert "|" in outside_groups(r"^a(?:b|c)[|]\||d")
    assert "|" not in outside_groups(r"^a(?:b|(?:c|d))[|]\|d")


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
        ("compaction", {"user": blocks(QWEN), "system": CODING, "tools": True}),
        ("compression", {"user": "First, reason in your <analysis> block.", "system": QWEN}),
        ("guard", {"user": "## Pending tool call", "system": CLASSIFIER, "tools": True}),
        ("qwen-summary", {"user": blocks(PROJECT), "system": CODING}),
    ],
)
def test_background_requests_of_applications_are_helper_calls(
    wanted: str, call: dict[str, Any], stream: bool
) -> None:
    assert ask(**call, later=True, stream=stream) == wanted


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
    assert ask(**call, later=True) == ""


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
    request = read_messages(json.dumps(body).encode(), {"content-type": "application/json"})
    assert helper_of(request.body, request.query) == "claude-title"


@pytest.mark.parametrize("cut", [12, 24, 36])
def test_texts_with_similar_beginnings_are_checked_quickly(cut: int) -> None:
    """Texts that are almost theirs, repeated: matched at the beginning alone."""
    for text in (QWEN, RECAP, CODEX_TITLE, PROJECT, MONITOR, OPENCODE):
        for joint in ("", "\n", " \n\n"):
            hostile = (text[:cut] + joint) * 20_000
            assert ask(hostile, hostile, later=True) == ""
            assert ask(" " * 2000 + hostile, "\n" * 2000 + hostile, later=True) == ""
