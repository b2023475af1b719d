"""Measures how much of an answer is new, compared with its group or with the newest winners."""

from collections.abc import Sequence

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting
from proxy.rewards.parts.expected_answer import expected_answer
from proxy.rewards.text import Reading

_EMPTY = PartValue(0.0, "nothing to compare")
_ALONE = PartValue(1.0, "shares no phrase with a sibling")
_NEW = PartValue(1.0, "shares no phrase with a recent winner")


def shared_most(readings: Sequence[Reading]) -> list[tuple[int, int]]:
    """Return for each answer the number of trigrams that its nearest sibling shares, and its index.

    The index is the position of that sibling; 0 and -1 for an answer that shares none.
    """
    most = [(0, -1)] * len(readings)
    grams = [reading.grams for reading in readings]
    for place, own in enumerate(grams):
        for other in range(place):
            shared = len(own & grams[other])
            if shared > most[place][0]:
                most[place] = (shared, other)
            if shared > most[other][0]:
                most[other] = (shared, place)
    return most


def among_siblings(readings: Sequence[Reading]) -> list[PartValue]:
    """Return 1 minus the largest share of an answer's trigrams that one sibling has too."""
    if len(readings) == 1:
        return [_ALONE if readings[0].grams else _EMPTY]
    values = []
    for reading, (shared, nearest) in zip(readings, shared_most(readings), strict=True):
        size = len(reading.grams)
        if not size:
            values.append(_EMPTY)
        elif nearest < 0:
            values.append(_ALONE)
        else:
            share = shared / size
            reason = f"{share:.0%} shared with candidate {nearest + 1}"
            values.append(PartValue(1.0 - share, reason))
    return values


def against_history(
    readings: Sequence[Reading], recent: Sequence[frozenset[int]]
) -> list[PartValue]:
    """Return 1 minus the largest share of an answer's trigrams that one recent winner has too."""
    values = []
    for reading in readings:
        own = reading.grams
        if not own:
            values.append(_EMPTY)
            continue
        shared = max([len(own & grams) for grams in recent if not own.isdisjoint(grams)], default=0)
        share = shared / len(own)
        reason = f"{share:.0%} shared with a recent winner"
        values.append(PartValue(1.0 - share, reason) if shared else _NEW)
    return values


class Diversity:
    """Compares with the siblings, with recent winners, or with both and takes the lower value."""

    def __init__(self, against: str = "group", by_query: bool = False) -> None:
        self._against, self._by_query = against, by_query
        self.looks_back = against != "group"

    def score(self, group: PartInput) -> list[PartValue] | None:
        """Return one value for each answer.

        With `by_query` the part does not apply to a question about a fact without tools: right
        answers to it are alike, and one that differs is seldom right.
        """
        context = group.context
        if self._by_query and not context.tools and expected_answer(context.query).fact:
            return None
        if self._against == "group":
            return among_siblings(group.readings)
        past = against_history(group.readings, group.recent)
        if self._against == "recent":
            return past
        siblings = among_siblings(group.readings)
        return [
            min(pair, key=lambda value: value.value) for pair in zip(siblings, past, strict=True)
        ]


_AGAINST = ("group", "recent", "both")

DIVERSITY = PartKind(
    lambda name, settings, where: Diversity(settings["against"], settings["by_query"]),
    "1 minus the share of an answer's word trigrams that occur in another answer",
    {
        "against": Setting(
            "text",
            "group",
            "compare with the group's other answers, recent winners, or both",
            choices=_AGAINST,
        ),
        "by_query": Setting(
            "flag", False, "skip it for a question about a fact if no tools are offered"
        ),
    },
    relative="it compares with other answers",
)
