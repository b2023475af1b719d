"""Which language an answer is written in: by script, and by the commonest words."""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

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
_OF: dict[str, tuple[str, ...]] = {}
for _language, _words in _COMMON.items():
    for _word in _words.split():
        _OF[_word] = (*_OF.get(_word, ()), _language)

LANGUAGES = (*_COMMON, *_SCRIPTS)
ENOUGH = 3
"""Words, or characters of a script, below which nothing is said."""


def shares(text: str) -> dict[str, float]:
    """Share of each language in `text`, most likely first; empty when there is too little of it.

    A script counts by its characters, at two to a word; the words of Latin script go to the
    languages whose commonest words they are, those of no list in proportion.
    """
    text = ends_of(text)
    weights: dict[str, float] = {}
    if text.isascii():
        words = words_of(text)
    else:
        words = [word.lower() for word in _LATIN.findall(text) if word[0] < "\u0370"]
        weights = {name: len(find.findall(text)) / 2 for name, find in _FINDERS.items()}
        if weights["ja"]:  # kana make the characters beside them Japanese
            weights["ja"] += weights.pop("zh")
    known = [_OF[word] for word in words if word in _OF]
    if known:
        votes = Counter(chain.from_iterable(known))
        total = votes.total()
        for language, count in votes.items():
            weights[language] = weights.get(language, 0.0) + len(words) * count / total
    whole = sum(weights.values())
    if whole < ENOUGH:
        return {}
    ranked = sorted(weights.items(), key=lambda one: -one[1])
    return {name: count / whole for name, count in ranked if count > 0}


class Language:
    """1 for the language that is wanted; less, by how likely that is, for another."""

    def __init__(self, wanted: str = "query") -> None:
        self._wanted = wanted

    def score(self, group: PartInput) -> list[PartValue | None] | None:
        """None where there is too little text to say, in the query or in an answer."""
        wanted = self._wanted
        if wanted == "query":
            asked = shares(group.context.query)
            if not asked:
                return None
            wanted = next(iter(asked))
        return [_of(shares(reading.text), wanted) for reading in group.readings]


def _of(found: dict[str, float], wanted: str) -> PartValue | None:
    if not found:
        return None
    first = next(iter(found))
    if first == wanted:
        return PartValue(1.0, wanted)
    share = found.get(wanted, 0.0) / found[first]
    return PartValue(0.5 * share, f"{first}, not {wanted}")


def make(name: str, settings: Mapping[str, Any], where: Path) -> Language:
    return Language(settings["wanted"])


KIND = PartKind(
    make,
    "1 for an answer in the language of the query, or in the one that is named",
    {
        "wanted": Setting(
            "text", "query", "the query's, or a language", choices=("query", *LANGUAGES)
        )
    },
)
