"""Measures whether an answer refers to the query."""

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting
from proxy.rewards.parts.expected_answer import expected_answer
from proxy.rewards.text import READ_LIMIT, words_of

FULL_SHARE = 0.5
"""Share of the words of the query that gives 1: repeating all of the question is no better."""

TERSE = 4
"""Words that may be the whole answer to a question about a fact, even if the query has them all."""
SENTENCE = 8
"""Words in an answer to such a question that may have none of the query's: `It is Paris, of course`
is no worse than `Paris`."""
NEUTRAL = 0.5
"""Value of an answer that is too short to compare."""
_TERSE = PartValue(NEUTRAL, "too short to compare with the query")
_ECHO = PartValue(0.0, "repeats words of the query only")


class Relevance:
    """Share of the query's content words that the answer uses, by their stems."""

    def __init__(self, enough: float = FULL_SHARE) -> None:
        self._factor = 1.0 / enough

    def score(self, group: PartInput) -> list[PartValue | None] | None:
        """Return one value for each answer; None for one that calls tools.

        The part does not apply to a query without content words, nor to an answer that needs none
        of them, such as a translation.
        """
        stems = group.stems
        if not stems:
            return None
        size, factor = len(stems), self._factor
        spaced = [" " + stem for stem in stems]
        values: list[PartValue | None] = []
        query = frozenset(words_of(group.context.query[:READ_LIMIT]))
        expected = expected_answer(group.context.query)
        for reading in group.readings:
            if reading.tool_calls:
                values.append(None)
                continue
            words = reading.words
            if expected.own_words and not query.issuperset(words):
                values.append(None)
                continue
            if expected.fact and 0 < len(words) <= TERSE:
                values.append(_TERSE)
                continue
            if words and query.issuperset(words):
                values.append(_ECHO)
                continue
            line, used = reading.line, 0
            for stem in spaced:
                if stem in line:
                    used += 1
            value = factor * used / size
            reason = f"{used} of {size} query words used"
            if value < NEUTRAL and expected.fact and 0 < len(words) <= SENTENCE:
                value, reason = NEUTRAL, f"{reason}, a short sentence"
            values.append(PartValue(value if value < 1.0 else 1.0, reason))
        return values


RELEVANCE = PartKind(
    lambda name, settings, where: Relevance(settings["enough"]),
    "Share of the query's content words that the answer uses",
    {"enough": Setting("number", FULL_SHARE, "share of these words that gives 1", 0.01, 1)},
)
