"""Kinds by the words of an answer: its length, relevance, diversity, repetition and language."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from proxy.rewards.part import (
    FunctionPart,
    PartInput,
    PartKind,
    PartValue,
    Setting,
    SettingError,
    each_by,
    scored_by,
)
from proxy.rewards.parts.expected_answer import expected_answer
from proxy.rewards.text import READ_LIMIT, Reading, ends_of, grams_of, words_of

# --- length -------------------------------------------------------------------------------------

IDEAL = 60.0
"""Words in an answer that is neither short nor long."""
WIDTH = 1.2
"""Tolerance: the value is 0.6 at a third and at three times the ideal."""
OFF_CENTER = 0.1
"""Deduction at either end of the range that a query implies, so that answers of different
lengths within it seldom get the same reward."""


def length(
    group: PartInput,
    ideal: float,
    least: float | None,
    most: float | None,
    by_query: bool,
    width: float,
) -> list[PartValue | None]:
    """1 within a range of words, falling smoothly on both sides; 0 for no words.

    It is smooth everywhere, so that two answers of different length seldom get the same reward. It
    does not apply to an answer that calls tools.
    """
    fits = ""
    if by_query:
        expected = expected_answer(group.context.query)
        low, high = expected.least, expected.most
        fits = f", {low:.0f} to {high:.0f} fit the query"
    elif least is None and most is None:
        low = high = ideal
    else:
        low, high = least or 1.0, most or math.inf
    return [
        None if reading.tool_calls else _length_value(reading.count, low, high, width, fits)
        for reading in group.readings
    ]


def _length_value(count: int, low: float, high: float, width: float, fits: str) -> PartValue:
    """Return the value of `count` words; `fits` names the range that the query implies, if any."""
    if count == 0:
        return PartValue(0.0, "no words")
    nearest = min(max(count, low), high)
    value = math.exp(-0.5 * (math.log(count / nearest) / width) ** 2)
    if fits and high > low:
        middle, half = 0.5 * math.log(low * high), 0.5 * math.log(high / low)
        distance = min(1.0, abs(math.log(count) - middle) / half)
        value *= 1.0 - OFF_CENTER * distance * distance
    return PartValue(value, ("1 word" if count == 1 else f"{count} words") + fits)


def _length(name: str, settings: Mapping[str, Any], where: Path) -> FunctionPart:
    least, most = settings["least"], settings["most"]
    if least is not None and most is not None and least > most:
        raise SettingError("least", f"`least` {least:g} is above `most` {most:g}", "Swap them")
    return FunctionPart(length, settings)


LENGTH = PartKind(
    _length,
    "Number of words: 1 within a range, falling smoothly outside",
    {
        "ideal": Setting("number", IDEAL, "best number of words if no range is given", 1),
        "least": Setting("number", None, "lower end of the range in words", 1),
        "most": Setting("number", None, "upper end of the range in words", 1),
        "by_query": Setting("flag", False, "the range depends on the query: a fact, a text"),
        "width": Setting(
            "number", WIDTH, "how slowly it falls: to 0.6 at e^width times the end", 0.01
        ),
    },
)

# --- relevance ----------------------------------------------------------------------------------

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


def relevance(group: PartInput, enough: float) -> list[PartValue | None] | None:
    """Share of the query's content words that the answer uses, by their stems.

    It does not apply to a query without content words, nor to an answer that calls tools or needs
    none of these words, such as a translation.
    """
    if not group.stems:
        return None
    spaced = [" " + stem for stem in group.stems]
    query = frozenset(words_of(group.context.query[:READ_LIMIT]))
    expected = expected_answer(group.context.query)
    values: list[PartValue | None] = []
    for reading in group.readings:
        words = reading.words
        short = expected.fact and words
        if reading.tool_calls or (expected.own_words and not query.issuperset(words)):
            values.append(None)
        elif short and len(words) <= TERSE:
            values.append(_TERSE)
        elif words and query.issuperset(words):
            values.append(_ECHO)
        else:
            used = sum([stem in reading.line for stem in spaced])
            value = min(1.0, used / len(group.stems) / enough)
            reason = f"{used} of {len(group.stems)} query words used"
            if value < NEUTRAL and short and len(words) <= SENTENCE:
                value, reason = NEUTRAL, f"{reason}, a short sentence"
            values.append(PartValue(value, reason))
    return values


RELEVANCE = PartKind(
    scored_by(relevance),
    "Share of the query's content words that the answer uses",
    {"enough": Setting("number", FULL_SHARE, "share of these words that gives 1", 0.01, 1)},
)

# --- diversity ----------------------------------------------------------------------------------

_NO_WORDS = PartValue(0.0, "nothing to compare")
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
    most = shared_most(readings)
    return [
        _new_share(reading, shared, f"candidate {nearest + 1}", _ALONE)
        for reading, (shared, nearest) in zip(readings, most, strict=True)
    ]


def against_history(
    readings: Sequence[Reading], recent: Sequence[frozenset[int]]
) -> list[PartValue]:
    """Return 1 minus the largest share of an answer's trigrams that one recent winner has too."""
    values = []
    for reading in readings:
        own = reading.grams
        shared = max([len(own & grams) for grams in recent if not own.isdisjoint(grams)], default=0)
        values.append(_new_share(reading, shared, "a recent winner", _NEW))
    return values


def _new_share(reading: Reading, shared: int, other: str, alone: PartValue) -> PartValue:
    """Return the value of an answer of which another one has so many trigrams too."""
    if not shared:
        return alone if reading.grams else _NO_WORDS
    share = shared / len(reading.grams)
    return PartValue(1.0 - share, f"{share:.0%} shared with {other}")


def diversity(group: PartInput, against: str, by_query: bool) -> list[PartValue] | None:
    """Compare with the siblings, with recent winners, or with both and take the lower value.

    With `by_query` the part does not apply to a question about a fact without tools: right answers
    to it are alike, and one that differs is seldom right.
    """
    if by_query and not group.context.tools and expected_answer(group.context.query).fact:
        return None
    if against == "group":
        return among_siblings(group.readings)
    past = against_history(group.readings, group.recent)
    if against == "recent":
        return past
    siblings = among_siblings(group.readings)
    return [min(pair, key=lambda value: value.value) for pair in zip(siblings, past, strict=True)]


def _diversity(name: str, settings: Mapping[str, Any], where: Path) -> FunctionPart:
    return FunctionPart(diversity, settings, looks_back=settings["against"] != "group")


DIVERSITY = PartKind(
    _diversity,
    "1 minus the share of an answer's word trigrams that occur in another answer",
    {
        "against": Setting(
            "text",
            "group",
            "compare with the group's other answers, recent winners, or both",
            choices=("group", "recent", "both"),
        ),
        "by_query": Setting(
            "flag", False, "skip it for a question about a fact if no tools are offered"
        ),
    },
    relative="it compares with other answers",
)

# --- repetition ---------------------------------------------------------------------------------

_RUN = re.compile(r"([^\s\-=_*#~.|+/\\])\1{29,}")
"""One character thirty times in a row, except those that draw rules and tables."""
_THREE_EQUAL = re.compile(r"(.)\1\1", re.DOTALL)
"""In a run, every tenth character gives three equal ones: a cheap test for most answers."""
_NO_REPEATS = PartValue(1.0, "0% of the phrases are repeats")


def repetition(reading: Reading, closes: float, shut: float) -> PartValue:
    """0 for an empty answer or a loop, 1 for ordinary text, between them by repeated 4-grams."""
    words = reading.words
    if not words and not reading.text.strip() and not reading.tool_calls:
        return PartValue(0.0, "empty answer")
    if _THREE_EQUAL.search(reading.ends[::10]) and (run := _RUN.search(reading.ends)):
        return PartValue(0.0, f"{run.group(1)!r} over and over")
    if len(words) < 11:
        return PartValue(1.0, "no repetition")
    if len(reading.grams) >= len(words) - 2:  # no trigram is repeated, so no 4-gram is
        return _NO_REPEATS
    grams = list(grams_of(words, 4))
    repeated = 1.0 - len(set(grams)) / len(grams)
    value = (shut - repeated) / (shut - closes) if repeated else 1.0
    return PartValue(min(1.0, max(0.0, value)), f"{repeated:.0%} of the phrases are repeats")


REPETITION = PartKind(
    each_by(repetition),
    "0 for an empty answer or a loop, by the share of repeated 4-grams",
    {
        "closes": Setting("number", 0.2, "share of repeats at which it starts to fall", 0, 1),
        "shut": Setting("number", 0.7, "share of repeats at which it reaches 0", 0, 1),
    },
    gate=True,
    ascending=("closes", "shut"),
)

# --- language -----------------------------------------------------------------------------------

_SCRIPTS = {
    "zh": "\u4e00-\u9fff\u3400-\u4dbf",
    "ja": "\u3040-\u30ff",
    "ko": "\uac00-\ud7af\u1100-\u11ff",
    "ru": "\u0400-\u04ff",
    "el": "\u0370-\u03ff",
    "ar": "\u0600-\u06ff",
    "he": "\u0590-\u05ff",
    "hi": "\u0900-\u097f",
    "th": "\u0e00-\u0e7f",
}
_FINDERS = {name: re.compile(f"[{span}]") for name, span in _SCRIPTS.items()}
_LATIN = re.compile(r"[^\W\d_]+")

_COMMON = {
    "en": "the of and to is in that it was for on are with as be this have from or by not but you "
    "they which what an at can will there their we has would more if",
    "de": "der die das und ist nicht ein eine zu den mit sich des auf für im dem von es auch als "
    "wie sie er wir aber nach werden bei einen oder sind wird ich",
    "fr": "le la les et est des un une du en que qui dans pour pas sur au avec ce il elle nous "
    "vous sont par plus se mais ou cette je ne",
    "es": "el la los las de y es en que un una del por con no se su para al lo como más pero sus "
    "le ya o este está son muy hay yo",
    "it": "il la di che è e un una in per non si del con della i le da sono gli al come ma più "
    "anche nel lo ha alla dei questo",
    "pt": "o a os as de e é em que um uma do da não para com se por no na mais como mas ao dos "
    "foi são está você isso",
    "nl": "de het een en van is in dat op te zijn met voor niet aan er maar om ook als bij door "
    "naar wordt worden dit die ik je we",
}
_LANGUAGES_OF_WORD: dict[str, tuple[str, ...]] = {}
for _language, _words in _COMMON.items():
    for _word in _words.split():
        _LANGUAGES_OF_WORD[_word] = (*_LANGUAGES_OF_WORD.get(_word, ()), _language)

LANGUAGES = (*_COMMON, *_SCRIPTS)
MIN_WORDS = 3
"""Words, or characters of a script, below which the language is unknown."""


def shares(text: str) -> dict[str, float]:
    """Return the share of each language in `text`, most likely first; empty for too little text.

    A script counts by its characters, two for a word. Words in Latin script count for the languages
    whose common words they are; words of no list are divided in proportion.
    """
    text = ends_of(text)
    weights: dict[str, float] = {}
    if text.isascii():
        words = words_of(text)
    else:
        words = [word.lower() for word in _LATIN.findall(text) if word[0] < "\u0370"]
        weights = {name: len(find.findall(text)) / 2 for name, find in _FINDERS.items()}
        if weights["ja"]:  # with kana, the ideographs are Japanese too
            weights["ja"] += weights.pop("zh")
    known = [_LANGUAGES_OF_WORD[word] for word in words if word in _LANGUAGES_OF_WORD]
    if known:
        votes = Counter(chain.from_iterable(known))
        total = votes.total()
        for language, count in votes.items():
            weights[language] = weights.get(language, 0.0) + len(words) * count / total
    whole = sum(weights.values())
    if whole < MIN_WORDS:
        return {}
    ranked = sorted(weights.items(), key=lambda share: -share[1])
    return {name: count / whole for name, count in ranked if count > 0}


def language(group: PartInput, wanted: str) -> list[PartValue | None] | None:
    """1 for the expected language, less for another one; None for too little text."""
    if wanted == "query":
        query_shares = shares(group.context.query)
        if not query_shares:
            return None
        wanted = next(iter(query_shares))
    return [_language_value(shares(reading.text), wanted) for reading in group.readings]


def _language_value(languages: dict[str, float], expected: str) -> PartValue | None:
    if not languages:
        return None
    first = next(iter(languages))
    if first == expected:
        return PartValue(1.0, expected)
    share = languages.get(expected, 0.0) / languages[first]
    return PartValue(0.5 * share, f"{first}, not {expected}")


LANGUAGE = PartKind(
    scored_by(language),
    "1 for an answer in the language of the query, or in a given language",
    {
        "wanted": Setting(
            "text",
            "query",
            "`query` for the query's language, or a language",
            choices=("query", *LANGUAGES),
        )
    },
)
