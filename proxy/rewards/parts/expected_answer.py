"""The answer that a query calls for, by its words: a fact or an explanation, a length, code.

It recognizes English, and for facts also the question words of German, French and Spanish. Any
other query calls for an explanation.
"""

import re
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import msgspec

FACT = (1.0, 60.0)
"""Words in an answer to a question about a fact."""
OPEN = (30.0, 200.0)
"""Words in an answer to any other query."""
CODE = (5.0, 200.0)
"""Words in an answer that is code."""
_SHORT = (3.0, 30.0)
"""Words in an answer that has to be brief."""
_SENTENCE = (6.0, 25.0)
"""Words in a sentence."""
_HEAD, _TAIL = 400, 200
_LONG = 40
"""Words in a query from which on it is more than a question about a fact."""


_COUNTS = {
    "a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10,
}  # fmt: skip
_COUNT = rf"(\d{{1,4}}|{'|'.join(_COUNTS)}|single)"
_LIMIT = rf"\b(?:in|with|use|using|exactly|most|than) {_COUNT}[- ]"
_WORDS = re.compile(rf"{_LIMIT}words?\b")
_SENTENCES = re.compile(rf"{_LIMIT}sentences?\b")
_BRIEF = re.compile(r"\b(?:briefly|in short|in brief|one[- ]lin(?:e|er)|be concise|concisely)\b")

_FACT = re.compile(
    r"""(?x)\W*(?:(?:please|so|and|ok(?:ay)?|hi|hello)\b\W*)*(?:
    who|when|where|which|whose|what(?:'s|\ (?:is|are|was|were|year|day|time|colou?r|number|kind))
    |how\ (?:many|much|old|long|far|tall|big|often|fast|high|deep)
    |is|are|was|were|does|do|did|has|have
    |name|translate|compute|calculate|solve|evaluate|add|subtract|multiply|divide|convert
    |true\ or\ false|yes\ or\ no
    |wer|wann|wo|welche[rs]?|wie\ (?:viele?|alt|lang|weit|hoch|oft)|was\ ist
    |qui|quand|où|combien|quel(?:le)?s?|quién|cuándo|dónde|cuánt[oa]s?|cuál
    )\b""",
)
_NO_FACT = re.compile(
    r"\b(?:explain|why|difference|compare|describe|should i|how (?:do|can|to|does)|warum|pourquoi"
    r"|advantages?|steps|in detail|write|give me|best way|summari[sz]e|erkläre?)\b"
)

_OWN_WORDS = re.compile(
    r"\b(?:translate|übersetze|traduis|traduce|slogan|pun"
    r"|(?:suggest|find|give|think of|come up with|propose)\b[^.?!\n]{0,20}"
    r"\b(?:names?|titles?|words?))\b"
)

_LANGUAGE = (
    r"(?:python|javascript|js|typescript|java|c\+\+|c#|golang|rust|ruby|php|bash|shell|sql|html|css"
    r"|powershell|git|react|django|awk|sed|unix|linux)"
)
_CODE = re.compile(
    rf"\b(?:write|show|give|create|implement|generate|provide|code)\b[^.?!\n]{{0,60}}?"
    rf"(?:\b(?:function|one-liner|code snippet|unit test|dockerfile|makefile|regex|sql)s?\b"
    rf"|\bregular expression\b|\bcode (?:that|to|for|which)\b"
    rf"|\b{_LANGUAGE}\b(?: \w+)? "
    rf"(?:script|class|program|query|command|decorator|component|code)\b)"
)

_TERM = r"\d{1,9}(?:\.\d{1,6})?"
_SIGN = r"[-−+*×x/÷]|plus|minus|times|divided by"
_SUM = re.compile(
    rf"(?:please )?(?:what(?:'s| is)|how much is|calculate|compute|evaluate|solve)? ?:? ?"
    rf"({_TERM}(?: ?(?:{_SIGN}) ?{_TERM})+) ?(=?)[ ?.!]*"
)
_STEP = re.compile(rf" ?({_SIGN}) ?")
_TIGHT = re.compile(r"\d[-−/x]\d")
"""Two numbers that are as often a date, a range or a format as a sum: `9/11`, `10-12`, `4x4`."""
_SUM_LIMIT = 100
"""Maximum length of a query that is a sum alone, in characters."""
_EXACT = Context(prec=2 * _SUM_LIMIT)


class ExpectedAnswer(msgspec.Struct, frozen=True):
    """The answer that one query calls for."""

    least: float
    most: float
    """Range of the number of words in a fitting answer."""
    fact: bool
    """Whether a few words may be the whole answer."""
    code: bool
    """Whether the answer is code."""
    own_words: bool
    """Whether the answer needs none of the query's words: a translation, a name."""


@lru_cache(maxsize=512)
def _classify(text: str, long: bool) -> ExpectedAnswer:
    text = text.lower().replace("’", "'")
    code = _CODE.search(text) is not None
    own = _OWN_WORDS.search(text) is not None
    if (match := _WORDS.search(text)) is not None:
        count = _count(match[1])
        return ExpectedAnswer(max(1.0, 0.6 * count), max(1.0, 1.1 * count), count <= 5, code, own)
    if (match := _SENTENCES.search(text)) is not None:
        count = _count(match[1])
        return ExpectedAnswer(_SENTENCE[0] * count, _SENTENCE[1] * count, False, code, own)
    if code:
        return ExpectedAnswer(*CODE, False, True, own)
    if _BRIEF.search(text) is not None:
        return ExpectedAnswer(*_SHORT, False, False, own)
    fact = not long and _FACT.match(text) is not None and _NO_FACT.search(text) is None
    return ExpectedAnswer(*(FACT if fact or own else OPEN), fact, False, own)


def _count(word: str) -> float:
    return float(word) if word.isdigit() else float(_COUNTS.get(word, 1))


def expected_answer(query: str) -> ExpectedAnswer:
    """Return the answer that `query` calls for, from its beginning and its end."""
    text = query
    if len(query) > _HEAD + _TAIL:
        text = f"{query[:_HEAD]} {query[-_TAIL:]}"
    long = len(query) > _HEAD or (len(query) >= _LONG and query.count(" ") >= _LONG)
    return _classify(text, long)


def value_of_sum(query: str) -> Decimal | None:
    """Return the value of a query that is plain arithmetic and nothing else: `What is 3 + 4?`.

    None for any other query, and for a quotient that is not a whole number, because it can be
    written in many ways.
    """
    if len(query) > _SUM_LIMIT:
        return None
    match = _SUM.fullmatch(" ".join(query.lower().replace("’", "'").split()))
    if match is None or (_TIGHT.search(match[1]) and not match[2]):
        return None
    first, *steps = _STEP.split(match[1])
    total, term = Fraction(0), Fraction(first)
    for sign, number in zip(steps[::2], map(Fraction, steps[1::2]), strict=True):
        if sign in ("+", "plus"):
            total, term = total + term, number
        elif sign in ("-", "−", "minus"):
            total, term = total + term, -number
        elif sign in ("*", "×", "x", "times"):
            term *= number
        elif number and (term / number).denominator == 1:
            term /= number
        else:
            return None
    total += term
    return _EXACT.divide(Decimal(total.numerator), Decimal(total.denominator))
