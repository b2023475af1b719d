"""The filter line of the request list: `state:awaiting reward<0.2 text~paris dead:yes paris`.

All terms must match; `-` before a term negates it; "quotes" keep spaces and signs in one term.
"""

import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ajet_swarm.common.errors import UsageError
from console.session.group_facts import best_reward, spread_of, verdict
from core.state import OPEN_PHASES, SEALED_PHASES, Group

_TERM = re.compile(
    r'(?P<minus>-?)(?:(?P<field>[A-Za-z_]+)(?P<op><=|>=|<|>|:|~|=))?(?P<value>"[^"]*"?|[^\s"]*)'
)
_PHASES = OPEN_PHASES | SEALED_PHASES
_SHOWN = {"DONE": "FINISHED"}
"""Phases with a different word on screen; the filter accepts both."""
_LOST = "LOST"
"""The `state:` of a group that ended and whose episodes the engine discarded."""
STATES = ("open", *sorted(_SHOWN.get(phase, phase).lower() for phase in {*_PHASES, _LOST}))
"""The values of `state:`."""
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    ":": operator.eq,
}

Test = Callable[[Group], bool]


class FilterError(UsageError):
    """A syntax error in the filter line; `position` is the index of the character, from 0."""

    def __init__(self, what: str, position: int, todo: str = "") -> None:
        self.position = position
        super().__init__(what, f"character {position + 1}", todo)


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter line."""

    text: str = ""
    tests: tuple[Test, ...] = ()

    def matches(self, group: Group) -> bool:
        """Return whether the group matches all terms."""
        return all(test(group) for test in self.tests)

    def __bool__(self) -> bool:
        return bool(self.tests)


def parse(text: str) -> Filter:
    """Parse a filter line.

    Raises:
        FilterError: a field, operator or value is unknown; the error contains the position and
            the valid choices.
    """
    tests: list[Test] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TERM.match(text, at)
        if match is None or match.end() == at:
            raise FilterError(f"{text[at]!r} cannot be read here", at)
        test = _term(match)
        tests.append(_inverted(test) if match["minus"] else test)
        at = match.end()
    return Filter(text.strip(), tuple(tests))


def _inverted(test: Test) -> Test:
    return lambda group: not test(group)


def _term(match: re.Match[str]) -> Test:
    value = match["value"]
    if value.startswith('"'):
        if len(value) < 2 or not value.endswith('"'):
            raise FilterError("the quote is not closed", match.start("value"), 'End it with "')
        value = value[1:-1]
    field, sign = (match["field"] or "").lower(), match["op"]
    if not field:
        if not value:
            raise FilterError("a word is missing after `-`", match.end())
        return _contains("query", value)
    if not value:
        raise FilterError(f"`{field}{sign}` needs a value", match.end(), _HELP.get(field, ""))
    kind = next((kind for kind in _KINDS if field in kind.fields), None)
    if kind is None:
        raise FilterError(
            f"there is no field `{field}`",
            match.start("field"),
            f"Fields: {', '.join(FIELDS)}; put it in quotes to search for the text",
        )
    if sign not in kind.signs:
        takes = f"`{field}` takes {' '.join(kind.signs)}"
        raise FilterError(takes, match.start("op"), _HELP.get(field, ""))
    try:
        return kind.test(field, sign, value)
    except ValueError as error:
        raise FilterError(str(error), match.start("value"), _HELP.get(field, "")) from None


def _contains(field: str, value: str) -> Test:
    needle, read = value.casefold(), _TEXTS[field]
    return lambda group: needle in read(group).casefold()


def _number_test(field: str, sign: str, value: str) -> Test:
    try:
        limit = float(value)
    except ValueError:
        raise ValueError(f"`{value}` is not a number") from None
    compare, read = _OPERATORS[sign], NUMBERS[field]

    def test(group: Group) -> bool:
        actual = read(group)
        return actual is not None and compare(actual, limit)

    return test


def _flag_test(field: str, sign: str, value: str) -> Test:
    expected = {"yes": True, "y": True, "no": False, "n": False}.get(value.lower())
    if expected is None:
        raise ValueError(f"`{field}` is yes or no")
    read = FLAGS[field]
    return lambda group: read(group) is expected


def _state_test(field: str, sign: str, value: str) -> Test:
    word = value.upper().replace("-", "_")
    if word == "OPEN":
        return lambda group: group.open
    phases = {
        phase
        for phase in {*_PHASES, _LOST}
        if phase.startswith(word) or _SHOWN.get(phase, phase).startswith(word)
    }
    if not phases:
        raise ValueError(f"there is no state `{value}`: {', '.join(STATES)}")
    return lambda group: (_LOST if group.discarded else group.phase) in phases


def _ids_test(field: str, sign: str, value: str) -> Test:
    ids = frozenset(value.split(","))
    return lambda group: group.group_id in ids


def _all_text(group: Group) -> str:
    texts = [group.query, *(candidate.text for candidate in group.candidates)]
    return "\n".join([*texts, *(candidate.tool_calls for candidate in group.candidates)])


def _span(begin: float, end: float | None) -> float | None:
    return None if end is None else end - begin


def _as_float(value: float | None) -> float | None:
    return None if value is None else float(value)


_TEXTS: dict[str, Callable[[Group], str]] = {
    "text": _all_text,
    "query": lambda group: group.query,
    "server": lambda group: group.server,
    "model": lambda group: group.model,
    "type": lambda group: group.episode_type,
    "source": lambda group: group.source,
    "row": lambda group: f"{group.row_id} {group.dataset_task_id}",
    "note": lambda group: group.note,
    "session": lambda group: group.session,
    "id": lambda group: f"{group.group_id} {group.request_id} {group.task_id}",
    "cause": lambda group: f"{group.cause} {group.dead} {group.abstained}",
}
NUMBERS: dict[str, Callable[[Group], float | None]] = {
    "reward": best_reward,
    "spread": lambda group: _as_float(spread_of(group)),
    "n": lambda group: float(group.n),
    "answered": lambda group: float(len(group.answered)),
    "step": lambda group: _as_float(group.step),
    "waited": lambda group: group.waited,
    "took": lambda group: _span(group.opened_at, group.closed_at),
}
FLAGS: dict[str, Callable[[Group], bool]] = {
    "dead": lambda group: verdict(group).kind == "dead",
    "marked": lambda group: group.marked,
    "rated": lambda group: group.is_rated,
    "unrated": lambda group: group.unrated,
    "abstained": lambda group: bool(group.abstained),
    "open": lambda group: group.open,
    "truncated": lambda group: group.prompt_cut,
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """Fields of one kind, their operators, and what makes a test of a field, operator and value.

    It raises `ValueError` for a value that it cannot use.
    """

    fields: Collection[str]
    signs: tuple[str, ...]
    test: Callable[[str, str, str], Test]


_KINDS = (
    _Kind(_TEXTS, ("~", ":", "="), lambda field, sign, value: _contains(field, value)),
    _Kind(NUMBERS, tuple(_OPERATORS), _number_test),
    _Kind(FLAGS, (":", "="), _flag_test),
    _Kind(("state", "phase"), (":", "="), _state_test),
    _Kind(("ids",), (":", "="), _ids_test),
)
FIELDS = ("state", "ids", *_TEXTS, *NUMBERS, *FLAGS)
_HELP = {
    "state": "For example state:awaiting",
    "ids": "Group ids in full, with commas: ids:5f58eeb4a4ec,0c1d2e3f4a5b",
    **{name: f"For example {name}~paris" for name in _TEXTS},
    **{name: f"For example {name}<0.2" for name in NUMBERS},
    **{name: f"{name}:yes or {name}:no" for name in FLAGS},
}
