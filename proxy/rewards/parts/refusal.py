"""The gate against answers that decline to answer."""

import re

from proxy.rewards.part import PartKind, PartValue, Setting, each_by
from proxy.rewards.text import Reading, line_of

REFUSAL_VALUE = 0.2
"""Value of an answer that only declines."""
WITH_REASON = 0.6
"""Value of an answer that declines and adds a reason or an alternative."""
REASON_WORDS = 12
"""Words besides the first sentence that amount to a reason or an alternative."""
AFTER_REFUSAL, AFTER_DOUBT = 60, 25
"""Words after the refusal, or the doubt, from which a text counts as an answer."""
_HEAD = 300


def _any(*phrases: str) -> str:
    """Return a pattern for any of the phrases."""
    return f"(?:{'|'.join(phrases)})"


_MODEL = r"(?:ai|(?:large )?language model|assistant)"
_SORRY = _any(
    r"(?:i'm|i am|we're|we are) (?:so |very |really |terribly )?(?:sorry|afraid)",
    "sorry",
    "my apologies",
    "i apologi[sz]e",
    "unfortunately",
    "regrettably",
    rf"as an? {_MODEL}(?: (?!i |we |i'm )\w+){{0,4}}",
    rf"(?:i'm|i am) (?:just|only) an? {_MODEL}",
)
_SORRY_FIRST = rf"(?:(?:(?:but|and|that|so) )?{_SORRY}\W+){{1,3}}(?:(?:but|and|that|so) )*"
_UNABLE = _any(
    "can(?:not|'t| not)",
    "(?:am| am|'m) (?:not able|unable) to",
    "(?:won't|will not)(?: be able to)?",
    "(?:must|have to) (?:respectfully )?(?:decline|refuse) to",
    "(?:am|'m) not (?:comfortable|allowed to|permitted to)",
)
_ACT = _any(
    "help|assist|support|answer|provide|comply|fulfill?|complete|discuss|engage|share|create",
    "generate|write|give|offer|recommend|suggest|tell|explain|translate|summari[sz]e|access|open",
    "run|execute|read|edit|modify|change|browse|perform|solve|compute|calculate|continue|process",
    "interpret|optimi[sz]e|debug|advise|speak|comment|respond|produce|proceed",
    "do (?:that|this|so|it|any)",
    r"do(?=\W*$|[.!?\n,])",
)
_FINDING = _any("wait|believe|imagine|reproduce|find|see|confirm|help but")
"""Verbs after "I cannot" that occur in an answer that does the task: "I cannot wait"."""
_LACKS = _any(
    "the (?:ability|capability|means)",
    "access",
    "preferences",
    "opinions",
    "(?:that|this) information",
)
_NOT_FOR_ME = _any(
    "not something (?:that )?i can",
    "something (?:that )?i (?:can(?:not|'t)|am unable)",
)
_OTHERS = _any(
    r"ich kann (?:dir|ihnen|dabei|das|dazu|leider)[^.!?\n]*\bnicht\b",
    r"leider kann ich[^.!?\n]*\b(?:nicht|kein)",
    r"(?:désolé\W+)?je ne peux pas",
    r"(?:lo siento\W+(?:pero )?)?no puedo",
)
"""German, French, Spanish."""
_DECLINES = re.compile(
    rf"\W*(?:no\W+)?(?P<sorry>{_SORRY_FIRST})?"
    rf"(?:(?(sorry)(?:(?:i|we) ?)?|(?:i|we) ?)"
    rf"(?:{_UNABLE}(?! {_FINDING})(?(sorry)|[ \w]{{0,24}}?\b{_ACT}\b)"
    rf"|(?:do not|don't) have {_LACKS}|(?:do not|don't) {_ACT}\b)"
    rf"|[^.!?\n]{{0,40}}(?:'s| is) {_NOT_FOR_ME}|{_OTHERS})"
)
_UNKNOWING = re.compile(
    rf"\W*(?:{_SORRY_FIRST})?(?:"
    + "|".join(
        (
            "(?:i|we) (?:do not|don't) (?:really )?know",
            "i(?:'m| am) not (?:really |quite )?(?:sure|certain)",
            "(?:i have )?no (?:idea|information)",
            "(?:it|that) (?:all )?depends",
            "hard to say",
            r"(?:please |you should |i(?:'d| would) recommend )(?:consult|ask)(?:ing)? an? \w+",
            "(?:please|can you|could you) (?:please )?(?:provide|share|give|say) (?:me )?more",
            "ich wei(?:ß|ss) (?:es )?nicht",
            "je ne sais pas",
            "no (?:lo )?sé",
        )
    )
    + r")\b"
)

_SIGN_WORDS = """
can can't can’t cannot won't won’t don't don’t not unable decline refuse know sure certain idea
information depends say consult consulting ask asking more kann weiß weiss peux sais puedo sé
"""
_SIGNS = frozenset(_SIGN_WORDS.split())
"""Every refusal contains one of these words, so most answers need no further check."""
_FIRST = 50
_END = re.compile(r"[.!?\n:;]|,? but\b")
"""End of the clause with which an answer declines."""
_ANSWERS = PartValue(1.0, "answers")


def refusal(reading: Reading, left: float) -> PartValue:
    """1 for an answer, less for one that declines; `left` for one that only declines."""
    if reading.tool_calls or _SIGNS.isdisjoint(reading.words[:_FIRST]):
        return _ANSWERS
    head = reading.text[:_HEAD].lower().replace("’", "'")
    match, what, enough = _DECLINES.match(head), "declines to answer", AFTER_REFUSAL
    if match is None:
        match, what, enough = _UNKNOWING.match(head), "does not answer", AFTER_DOUBT
    if match is None:
        return _ANSWERS
    end = _END.search(head, match.end())
    if end is not None and end[0].endswith("but") and enough == AFTER_DOUBT:
        return _ANSWERS  # "I am not sure, but I think it is 7"
    declining = head if end is None else head[: end.start()]
    more = reading.count - len(line_of(declining).split())
    if more >= enough:
        return PartValue(1.0, f"{what} at first, then says {more} words")
    if more >= REASON_WORDS:
        return PartValue(max(left, WITH_REASON), f"{what}, and says {more} words more")
    return PartValue(left, what)


REFUSAL = PartKind(
    each_by(refusal),
    "1 for an answer, less for one that refuses or does not know, by its first sentence",
    {"left": Setting("number", REFUSAL_VALUE, "value of an answer that only refuses", 0, 1)},
    gate=True,
)
