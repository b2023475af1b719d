"""Rules that detect helper calls: requests of agents and chat pages outside the conversation.

A helper call (a title, a summary, follow-up questions, tags, memory notes) is answered from one
episode and not trained on: it is not a turn of the conversation, and no one rates it. `RULES` has
all rules; each one names its client, its conditions and the reason why it is safe. All conditions
of a rule must hold; the first matching rule counts.

A rule only checks the beginning of the system prompt (`system`) and of the last user text
(`user`), and is specific enough that no task of a dataset matches it. These are never helper calls:
a request whose text matches only because a dataset row has that text, a request that names its row
(`X-Ajet-Row`), one with `X-Ajet-Train: yes`, and any request if the setting `proxy.helpers` is off.
A client can mark other helper calls with `X-Ajet-Train: no`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ajet_swarm.common.text import content_text

_SYSTEM = 600
_USER = 1200
"""Characters of the two texts that are checked."""

_VERBS = r"(?:generate|write|create|suggest|provide|give|produce|summari[sz]e|extract|name)\b"
_MEMORY = r"^\s*you are (?:now )?acting as the (?:[\w-]+ ){0,3}memory[ -]extraction (?:sub)?agent"
_PRODUCT = r"\b(?:titles?|summary|summari[sz]e|follow-?ups?|tags|topics?|slug|commit message)\b"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of helper call."""

    name: str
    client: str
    why: str
    """Why this is a helper call, and why no other request matches."""
    system: str = ""
    """Regular expression for the beginning of the system prompt."""
    user: str = ""
    """Regular expression for the beginning of the last user text."""
    tools: bool | None = None
    """Whether the request offers tools; None for both."""
    stream: bool | None = None
    agent: bool = False
    """Only if the client names its session and that session has sent requests with tools."""


RULES = (
    Rule(
        "opencode-title",
        "opencode, and others that took its words",
        "sent beside the first request of each session; the system prompt is nothing but this task",
        system=r"^\s*you are a title generator\b",
        tools=False,
    ),
    Rule(
        "opencode-summary",
        "opencode, pi",
        "shortens a conversation that has grown too long; not a turn of it",
        system=r"^\s*you are a (?:helpful ai assistant tasked with summarizing conversations"
        r"|context summarization (?:agent|assistant)\b)",
    ),
    Rule(
        "opencode-recap",
        "opencode",
        "what was done, for the list of sessions; sent by the program, never by its user",
        user=r"^\s*summarize what was done in this conversation",
        tools=False,
    ),
    Rule(
        "openwebui-follow-ups",
        "Open WebUI",
        "its task prompts have this heading, no tools and no stream; questions the user might ask",
        user=r"^### task:\s*(?:suggest|predict) \d",
        tools=False,
        stream=False,
    ),
    Rule(
        "openwebui-title",
        "Open WebUI",
        "the same heading; a title of the chat",
        user=r"^### task:\s*generate a concise,? [^\n]{0,40}title",
        tools=False,
        stream=False,
    ),
    Rule(
        "openwebui-tags",
        "Open WebUI",
        "the same heading; tags of the chat",
        user=r"^### task:\s*generate \d[^\n]{0,20} tags\b",
        tools=False,
        stream=False,
    ),
    Rule(
        "openwebui-search",
        "Open WebUI",
        "the same heading; whether and what to search for. With documents the user's own question "
        "has the heading too, but asks to respond to the user query: no rule takes that",
        user=r"^### task:\s*(?:analyze the chat history to determine|you are an autocompl)",
        tools=False,
        stream=False,
    ),
    Rule(
        "openwebui-image",
        "Open WebUI",
        "the same heading; words for an image",
        user=r"^### task:\s*generate a detailed prompt for am? image",
        tools=False,
        stream=False,
    ),
    Rule(
        "memory",
        "qwen-code after each turn, Claude Code and its kin",
        "has tools and the whole conversation, but writes the program's own notes on it",
        system=_MEMORY,
    ),
    Rule(
        "memory-turn",
        "Claude Code and its kin",
        "the same, asked in a last user message",
        user=_MEMORY,
    ),
    Rule(
        "claude-topic",
        "Claude Code",
        "names the window of the terminal",
        system=r"analyze if this message indicates a new conversation topic",
        tools=False,
    ),
    Rule(
        "claude-title",
        "Claude Code",
        "names the session in its list",
        system=r"(?:generate a concise, sentence-case title|summarize this coding conversation in "
        r"under \d+|write a 5-10 word title|you are naming a coding session\b)",
        tools=False,
    ),
    Rule(
        "claude-title-turn",
        "Claude Code",
        "the same, asked in the user message",
        user=r"^\s*(?:please )?(?:write a 5-10 word title for the following conversation"
        r"|summarize this coding conversation in under \d+)",
        tools=False,
    ),
    Rule(
        "claude-command",
        "Claude Code",
        "judges a shell command before it is run",
        system=r"your task is to (?:process bash commands that an ai coding agent wants|determine "
        r"the command prefix)|extract any file paths that this command reads or modifies",
        tools=False,
    ),
    Rule(
        "claude-suggestion",
        "Claude Code",
        "guesses what the user might type next",
        user=r"^\s*\[suggestion mode:",
    ),
    Rule(
        "claude-page",
        "Claude Code",
        "digests a fetched page for the model",
        user=r"^\s*web page content:\s*---",
        tools=False,
    ),
    Rule(
        "claude-probe",
        "Claude Code",
        "asks whether the server is there; the whole message is this word",
        user=r"^\s*(?:quota|warmup)\s*$",
    ),
    Rule(
        "claude-recap",
        "Claude Code",
        "what was done, for a user who was away; its tools and the conversation stand before it",
        user=r"^\s*the user stepped away and is coming back\. recap in under \d+ words",
    ),
    Rule(
        "guard",
        "Claude Code, qwen-code",
        "judges a call of a tool before it is run; the system prompt is nothing but this task",
        system=r"^\s*you are a security (?:monitor for autonomous ai coding agents"
        r"|classifier for an ai coding agent)\b",
    ),
    Rule(
        "codex-title",
        "Codex",
        "names the thread; sent in a session of its own, with nothing but this task",
        user=r"^\s*generate a concise, single-line task title of at most \d+ characters",
        tools=False,
    ),
    Rule(
        "compaction",
        "Claude Code, Codex, openclaw, qwen-code, Open WebUI",
        "shortens a conversation that has grown too long; sent by the program, with or without "
        "its tools",
        user=r"(?m)^[^\S\n]*(?:your task is to create a detailed summary of (?:the|this) "
        r"(?:recent portion of the )?conversation"
        r"|you are performing a context checkpoint compaction|pre-compaction memory flush"
        r"|you are the component that summarizes a conversation when its context window"
        r"|### task:\s*summarize the conversation history that will be compacted)",
    ),
    Rule(
        "compression",
        "qwen-code and its kin",
        "shortens a conversation that has grown too long",
        system=r"^\s*you are the component that summarizes (?:internal chat history"
        r"|a conversation when its context window)",
    ),
    Rule(
        "qwen-summary",
        "qwen-code and its kin",
        "a summary for a file, asked by a command of the program; without its tools",
        user=r"^\s*please analyze the conversation history above and generate a comprehensive "
        r"project summary in markdown",
        tools=False,
    ),
    Rule(
        "next-speaker",
        "qwen-code and its kin",
        "asks whether the model wants to go on; answered in JSON for the program",
        user=r"^\s*analyze \*only\* the content and structure of your immediately preceding",
    ),
    Rule(
        "commit-message",
        "aider, cline",
        "words for a commit of the work that was done; the system prompt is nothing but this task",
        system=r"\bgenerates? (?:concise, one-line|informative) git commit messages\b",
        tools=False,
    ),
    Rule(
        "aider-summary",
        "aider",
        "shortens the older part of a conversation",
        system=r"^\s*\*briefly\* summarize this partial conversation about programming",
        tools=False,
    ),
    Rule(
        "openclaw-slug",
        "openclaw",
        "names the file in which a session is kept",
        user=r"generate a short 1-2 word filename slug\b",
        tools=False,
    ),
    Rule(
        "librechat-title",
        "LibreChat",
        "a title of the chat, by its own words",
        user=r"provide a concise, 5-word-or-less title for the conversation",
        tools=False,
    ),
    Rule(
        "beside-an-agent",
        "any agent that marks its session",
        "an agent's own turns offer its tools: a request of the same session without any, that "
        "begins by asking for a title, a summary, tags or the like, is none of them",
        user=rf"^(?:[^\n]{{0,80}}\b)?{_VERBS}[^\n]{{0,120}}{_PRODUCT}",
        tools=False,
        agent=True,
    ),
    Rule(
        "beside-an-agent-system",
        "any agent that marks its session",
        "the same, asked in the system prompt",
        system=rf"^(?:[^\n]{{0,80}}\b)?{_VERBS}[^\n]{{0,120}}{_PRODUCT}",
        tools=False,
        agent=True,
    ),
)

_Matcher = Callable[[str], re.Match[str] | None]


def _matcher(pattern: str) -> _Matcher:
    """Compile a pattern; one that begins with `^` is only matched at the beginning of a text.

    Alternatives of such a pattern must be in a group.
    """
    compiled = re.compile(pattern, re.IGNORECASE)
    return compiled.match if pattern.startswith("^") else compiled.search


_COMPILED = tuple(
    (
        rule,
        re.compile(rule.system, re.IGNORECASE) if rule.system else None,
        _matcher(rule.user) if rule.user else None,
    )
    for rule in RULES
)


def helper_of(
    body: Mapping[str, Any], query: str, *, stream: bool = False, agent: bool = False
) -> str:
    """Return the name of the rule that classifies a request as a helper call; empty for none.

    Args:
        body: The request's body, in the form of chat completions.
        query: Text of the last user message.
        stream: Whether the answer is streamed.
        agent: Whether the request's session has sent requests with tools.
    """
    system, user = _system(body.get("messages")), query[:_USER]
    candidates = _candidate_rules(system, bool(body.get("tools")), stream, agent)
    begins = candidates.begins
    rules = candidates.others if begins is None or begins(user) is None else candidates.rules
    for name, in_user in rules:
        if in_user is None or in_user(user):
            return name
    return ""


@dataclass(frozen=True, slots=True)
class _CandidateRules:
    """The rules whose conditions hold, except for the user's text: (name, matcher of that text)."""

    rules: tuple[tuple[str, _Matcher | None], ...]
    others: tuple[tuple[str, _Matcher | None], ...]
    """The rules that do not depend on the beginning of the user's text."""
    begins: _Matcher | None
    """Matches the beginning of any other rule; most texts match none, so this is fast."""


@lru_cache(maxsize=256)
def _candidate_rules(system: str, tools: bool, stream: bool, agent: bool) -> _CandidateRules:
    """Return the rules that match these properties of a request.

    Cached, as all requests of an application have the same system prompt.
    """
    candidates = [
        (rule, matcher)
        for rule, system_pattern, matcher in _COMPILED
        if rule.tools in (None, tools)
        and rule.stream in (None, stream)
        and (agent or not rule.agent)
        and (system_pattern is None or (system and system_pattern.search(system)))
    ]
    beginnings = "|".join(f"(?:{rule.user})" for rule, _ in candidates if rule.user.startswith("^"))
    return _CandidateRules(
        rules=tuple((rule.name, matcher) for rule, matcher in candidates),
        others=tuple(
            (rule.name, matcher) for rule, matcher in candidates if not rule.user.startswith("^")
        ),
        begins=re.compile(beginnings, re.IGNORECASE).match if beginnings else None,
    )


def _system(messages: Any) -> str:
    for message in messages or ():
        if message.get("role") not in ("system", "developer"):
            return ""
        if text := content_text(message.get("content")):
            return text[:_SYSTEM]
    return ""
