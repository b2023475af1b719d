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
from dataclasses import dataclass
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
