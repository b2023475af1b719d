"""Detects the language of an answer by its script and its most common words."""

import re
from collections import Counter
from itertools import chain

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting
from proxy.rewards.text import ends_of, words_of

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


class Language:
    """1 for the expected language, less for another one, by the share of the expected one."""

    def __init__(self, expected: str = "query") -> None:
        self._expected = expected

    def score(self, group: PartInput) -> list[PartValue | None] | None:
        """Return one value for each answer; None where query or answer has too little text."""
        expected = self._expected
        if expected == "query":
            query_shares = shares(group.context.query)
            if not query_shares:
                return None
            expected = next(iter(query_shares))
        return [_of(shares(reading.text), expected) for reading in group.readings]


def _of(languages: dict[str, float], expected: str) -> PartValue | None:
    if not languages:
        return None
    first = next(iter(languages))
    if first == expected:
        return PartValue(1.0, expected)
    share = languages.get(expected, 0.0) / languages[first]
    return PartValue(0.5 * share, f"{first}, not {expected}")


LANGUAGE = PartKind(
    lambda name, settings, where: Language(settings["wanted"]),
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
