"""Rules that detect helper calls: requests of agents and chat pages outside the conversation.

A helper call (a title, a summary, follow-up questions, tags, memory notes) is answered from one
episode and not trained on: it is not a turn of the conversation, and no one rates it. All rules are
in `helper_rules.toml`; each one names its client, its conditions and the reason why it is safe. All
conditions of a rule must hold; the first matching rule counts.

A rule only checks the beginning of the system prompt (`system`) and of the last user text
(`user`), and is specific enough that no task of a dataset matches it. These are never helper calls:
a request whose text matches only because a dataset row has that text, a request that names its row
(`X-Ajet-Row`), one with `X-Ajet-Train: yes`, and any request if the setting `proxy.helpers` is off.
A client can mark other helper calls with `X-Ajet-Train: no`.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text

_SYSTEM = 600
_USER = 1200
"""Characters of the two texts that are checked."""


class Rule(msgspec.Struct, frozen=True):
    """One kind of helper call; see `helper_rules.toml`."""

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


def _read_rules() -> tuple[Rule, ...]:
    """Read the rules; a pattern may be a list of pieces, and name a common part in braces."""
    found = msgspec.toml.decode(Path(__file__).with_name("helper_rules.toml").read_bytes())
    for rule in found["rules"]:
        for field in ("system", "user"):
            pattern = "".join(rule.get(field, ""))
            for name, part in found["parts"].items():
                pattern = pattern.replace(f"{{{name}}}", part)
            rule[field] = pattern
    return msgspec.convert(tuple(found["rules"]), tuple[Rule, ...])


RULES = _read_rules()

_Matcher = Callable[[str], re.Match[str] | None]
_Named = tuple[str, _Matcher]
"""Name of a rule, and what matches the user's text."""


def _matcher(pattern: str) -> _Matcher:
    """Compile a pattern; one that begins with `^` is only matched at the beginning of a text.

    Alternatives of such a pattern must be in a group.
    """
    compiled = re.compile(pattern, re.IGNORECASE)
    return compiled.match if pattern.startswith("^") else compiled.search


_COMPILED = tuple(
    (rule, re.compile(rule.system, re.IGNORECASE).search, _matcher(rule.user)) for rule in RULES
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
    begins, rules, others = _candidates(system, bool(body.get("tools")), stream, agent)
    for name, matches in rules if begins(user) else others:
        if matches(user):
            return name
    return ""


@lru_cache(maxsize=256)
def _candidates(
    system: str, tools: bool, stream: bool, agent: bool
) -> tuple[_Matcher, tuple[_Named, ...], tuple[_Named, ...]]:
    """Return the rules whose conditions hold, except for the user's text.

    Cached, as all requests of an application have the same system prompt.

    Returns:
        What matches the beginning of a text by any rule that depends on it, which is fast, since
        most texts match none; all rules; the rules that do not depend on that beginning.
    """
    candidates = [
        (rule, matches)
        for rule, in_system, matches in _COMPILED
        if rule.tools in (None, tools)
        and rule.stream in (None, stream)
        and (agent or not rule.agent)
        and (not rule.system or (system and in_system(system)))
    ]
    beginnings = [rule.user for rule, _ in candidates if rule.user.startswith("^")]
    return (
        re.compile("|".join(f"(?:{part})" for part in beginnings) or "(?!)", re.I).match,
        tuple((rule.name, matches) for rule, matches in candidates),
        tuple((rule.name, matches) for rule, matches in candidates if rule.user[:1] != "^"),
    )


def _system(messages: Any) -> str:
    for message in messages or ():
        if message.get("role") not in ("system", "developer"):
            return ""
        if text := content_text(message.get("content")):
            return text[:_SYSTEM]
    return ""
