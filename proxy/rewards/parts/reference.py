"""Kinds that compare an answer with the dataset's reference: in any form, exactly, by number.

Not by `math-verify` (0.9.0), which computes with the formulas it reads: `9^{9^9}` in an answer
keeps the event loop busy without end, or for 5 s with its timeout, which needs the main thread.
"""

import re
from collections import Counter
from collections.abc import Container, Sequence
from decimal import Context, Decimal

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting, scored_by
from proxy.rewards.parts.expected_answer import value_of_sum
from proxy.rewards.text import READ_LIMIT, words_of

ELSEWHERE = 0.25
"""Value of the right number in another place than at the end."""
RIGHT = 0.9
"""Lowest value of an answer that ends with the right number or contains the right words."""
FIRST = 0.75
"""Value of the right number before all others that the query does not contain."""
_NUMBER = re.compile(
    r"(?:(?<![\w)])[-+])?"
    r"(?:(?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,4}(?!\d))?(?:/\d+(?![\d/.]))?"
    r"|\.\d+)"
)
_DIGIT = re.compile(r"\d")
_SUPERSCRIPTS = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹", "-+0123456789")
_POWER_OF_TEN = re.compile(
    r"(?:(?<=\d)\s*(?:\\times|\\cdot|[x×*·⋅])\s*|(?<![\w.,^{]))10"
    r"(?:(?:\^|\*\*) ?\{? ?([-+]?\d{1,4}(?!\d)) ?\}?|([⁻⁺]?[⁰¹²³⁴-⁹]{1,4}(?![⁰¹²³⁴-⁹])))"
)
_WORDING = re.compile(r"\\(?:text|math|mbox|operatorname)[a-z]{0,8} ?\{([^{}]*)\}")
_SEPARATOR = re.compile(
    r"(?<=\d)(?:\{,(?:\\[,!])?\}|\{?,?\\[,!;: ]\}?|[\u00a0\u2009\u202f_])(?=\d{3}(?!\d))"
)
"""A separator of thousands other than a comma: `1{,}200`, `1\\,200`."""
_INDEX = re.compile(r"(?<=[^\W_]|[})])[\^_] ?(?:\{[^{}]*\}|\\circ|\d+)")
"""An exponent or an index, which is not a number of its own: `m^2`, `90^\\circ`, `\\log_{10}`."""
_FRACTION = re.compile(
    r"(?:(?<![\w.,])(\d{1,9}) ?)?\\[cdt]?frac ?"
    r"(?:\{ ?(-?\d{1,99}) ?\}|(\d)) ?(?:\{ ?(\d{1,99}) ?\}|(\d))"
)
_IRRATIONAL = re.compile(
    r"(?:\d{1,20}(?:\.\d{1,20})? ?)?(?:\\(?:pi|sqrt)(?![a-zA-Z])|[π√]) ?"
    r"(?:\[\d{1,4}\])?(?:\{[^{}]*\}|\d{1,20})?"
)
"""A factor of pi or a root, whose digits are not the number: `2\\pi`, `3\\sqrt{2}`."""
_UNIT = r"(?:\s*[%°€$£]|\s*°?[^\W\d]{1,12}(?:/[^\W\d]{1,8}|\s+per\s+\w{1,12})?[²³]?)?"
_ALONE = re.compile(rf"[^\w+\-.]*({_NUMBER.pattern}){_UNIT}[^\w]*")
_CONCLUDES = re.compile(
    rf"[^\n,=]*(?:=|\b(?:is|are|equals|makes|gives|to))\s*[$€£*]*({_NUMBER.pattern}){_UNIT}[.!*\s]*"
)
"""A short sentence or one equation that ends with its number."""
_NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90, "hundred": 100, "thousand": 1_000, "million": 1_000_000,
}  # fmt: skip
_SPELLED_WITHIN = 300
"""Characters at the end of a text that are searched for a spelled number."""
_MARK = re.compile(r"\\boxed\s*\{|####\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_EXACT = Context(prec=1_000, Emin=-9_999, Emax=9_999, traps=[])
"""Whole numbers are exact up to 1,000 digits and infinite above 10,000."""
_ONE = Decimal(1)

PHRASE = 12
"""Longest reference, in words, that an answer may contain verbatim."""
TOLERANCE = 1e-6
"""Relative difference up to which two numbers count as equal."""


def final(text: str) -> str | None:
    """Return the content of the last `\\boxed{}` or `####` of a text; None without one.

    The content of a box without an end is empty: an earlier box never replaces the last one.
    """
    if "####" not in text and "\\boxed" not in text:
        return None
    marks = [match.span() for match in _MARK.finditer(text)]
    if not marks:
        return None
    begin, start = marks[-1]
    if text[begin] == "#":
        return text[start:].partition("\n")[0].strip()
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[start : brace.start()].strip()
    return ""


def goal_of(reference: str) -> str:
    """Return the goal that a reference states: its marked end, or else its whole text."""
    return final(reference) or reference.strip()


def bare(text: str) -> str:
    """Return `text` in lower case, with single spaces and without punctuation around it."""
    return " ".join(text.lower().split()).strip(" .!?\"'`*")


def plain(text: str) -> str:
    """Return `text` with ASCII signs, and with LaTeX numbers as `1200`, `1.2e3` and `3/4`."""
    if text.isascii() and not any(sign in text for sign in "\\^_*{"):
        return text
    text = _POWER_OF_TEN.sub(_exponent, text.replace("−", "-"))
    if "\\" in text:
        text = _FRACTION.sub(_on_one_line, _WORDING.sub(r"\1", text))
    return _INDEX.sub("", _SEPARATOR.sub(",", _IRRATIONAL.sub("π", text)))


def _exponent(match: re.Match[str]) -> str:
    exponent = match[1] or match[2].translate(_SUPERSCRIPTS)
    return f"{'1' if match[0].startswith('10') else ''}e{exponent}"


def _on_one_line(match: re.Match[str]) -> str:
    """Return a fraction as `3/4`, also that of a mixed number: `2\\frac{1}{2}` is `5/2`."""
    whole, numerator, denominator = match[1], match[2] or match[3], match[4] or match[5]
    if whole:
        numerator = str(int(whole) * int(denominator) + int(numerator))
    return f"{numerator}/{denominator}"


def number_in(goal: str) -> Decimal | None:
    """Return the number of a goal: alone, with a unit, or at the end of a short sentence.

    None for any other goal.
    """
    goal = plain(goal)
    match = _ALONE.fullmatch(goal)
    if match is None and len(goal) <= 120:
        match = _CONCLUDES.fullmatch(goal)
    value = None if match is None else value_of(match.group(1))
    return value if value is not None and value.is_finite() else None


def value_of(number: str) -> Decimal:
    """Return the value of digits, which may be a fraction; `1/0` is not finite."""
    numerator, slash, denominator = number.replace(",", "").partition("/")
    value = _EXACT.create_decimal(numerator)
    return _EXACT.divide(value, _EXACT.create_decimal(denominator)) if slash else value


def numbers_of(text: str) -> frozenset[Decimal]:
    """Return the numbers that a text contains as digits."""
    if _DIGIT.search(text) is None:
        return frozenset()
    return frozenset(map(value_of, _NUMBER.findall(plain(text))))


def spelled(text: str) -> int | None:
    """Return the last number that the end of a text spells in English words; None without one.

    "one" counts only if it is the whole text: otherwise it is seldom a number.
    """
    words = words_of(text[-_SPELLED_WITHIN:])
    if _NUMBER_WORDS.keys().isdisjoint(words):
        return None
    end = len(words)
    while end:
        if words[end - 1] not in _NUMBER_WORDS:
            end -= 1
            continue
        start = end
        while start and (words[start - 1] in _NUMBER_WORDS or _joins(words, start - 1)):
            start -= 1
        if words[start:end] != ["one"] or len(words) == 1:
            sign = -1 if start and words[start - 1] in ("minus", "negative") else 1
            return sign * _number_of_words(words[start:end])
        end = start
    return None


def _joins(words: Sequence[str], place: int) -> bool:
    """Return whether a word is the "and" within a number: `one thousand and two`."""
    return words[place] == "and" and place > 0 and words[place - 1] in ("hundred", "thousand")


def _number_of_words(words: Sequence[str]) -> int:
    whole = part = 0
    for word in words:
        value = _NUMBER_WORDS.get(word, 0)
        if value >= 1_000:
            whole, part = whole + max(part, 1) * value, 0
        elif value == 100:
            part = max(part, 1) * 100
        else:
            part += value
    return whole + part


def by_number(
    text: str,
    goal: Decimal | float,
    elsewhere: float,
    tolerance: float,
    first: float | None = None,
    query_numbers: Container[Decimal] = (),
) -> PartValue:
    """Return 1 for a text whose final number is `goal`, `elsewhere` if it only contains it, else 0.

    The final number is in the last `\\boxed{}` or `####`, or else the last number of the text, in
    digits or spelled after them.

    Args:
        text: The answer.
        goal: The expected number.
        elsewhere: Value of a text that names `goal` but ends with another number.
        tolerance: Relative difference up to which numbers count as equal. At `TOLERANCE` and below,
            a whole number is met exactly, or rounded with an exponent: `6.02214e23`.
        first: Value of a text without a mark that names `goal` before any other number of its own.
        query_numbers: Numbers of the query, which are not the text's own.
    """

    goal = Decimal(goal)
    whole = tolerance <= TOLERANCE and goal.same_quantum(_ONE)

    def same(value: Decimal) -> bool:
        if value == goal or not value.is_finite():
            return value == goal
        if abs(value - goal) > Decimal(tolerance) * max(abs(value), abs(goal)):
            return False
        return not whole or int(value.as_tuple().exponent) > 0

    text = plain(text)
    marked = final(text)
    conclusion = text if marked is None else marked
    numbers = _NUMBER.findall(conclusion) if _DIGIT.search(conclusion) is not None else []
    end = value_of(numbers[-1]) if numbers else None
    if end is not None and same(end):
        return PartValue(1.0, f"ends with {_short(goal)}")
    trailing = spelled(conclusion.rpartition(numbers[-1])[2] if numbers else conclusion)
    if trailing is not None and same(Decimal(trailing)):
        return PartValue(1.0, f"ends with {_short(goal)}")
    if end is None:
        ends = "no number" if trailing is None else f"ends with {trailing:g}"
        return PartValue(0.0, f"{ends}, {_short(goal)} expected")
    values = [value_of(number) for number in _NUMBER.findall(text)]
    own = next((value for value in values if same(value) or value not in query_numbers), None)
    if first is not None and marked is None and own is not None and same(own):
        return PartValue(first, f"names {_short(goal)} first, ends with {_short(end)}")
    if any(map(same, values)):
        return PartValue(elsewhere, f"names {_short(goal)}, ends with {_short(end)}")
    return PartValue(0.0, f"ends with {_short(end)}, {_short(goal)} expected")


def _short(value: Decimal) -> str:
    return f"{value:.20g}"


def verbal(text: str, goal: str) -> PartValue:
    """Return 0.9 for a text that contains a short goal; else 0.6 times the words' F1."""
    words, goal_words = words_of(text), words_of(goal)
    if not goal_words:
        return PartValue(0.0, "the reference has no words to compare")
    if len(goal_words) <= PHRASE:
        if f" {' '.join(goal_words)} " in f" {' '.join(words)} ":
            return PartValue(0.9, "contains the reference")
        if len(goal_words) == 1:
            return PartValue(0.0, "the reference is not in it")
    common = (Counter(words) & Counter(goal_words)).total()
    score = 2 * common / (len(words) + len(goal_words))
    return PartValue(0.6 * score, f"word F1 with the reference {score:.2f}")


def agreement(text: str, reference: str, query_numbers: Container[Decimal] = ()) -> PartValue:
    """Return how well `text` agrees with `reference`.

    1 for the same text or the same final number; 0.9 for a short reference that the answer
    contains; 0.75 for the right number as the first that the query does not contain, 0.25 in
    another place than at the end; for longer references 0.6 times the F1 of words; else 0. The
    final number is in the last `\\boxed{}` or `####`, or else the last number, in digits or in
    English words.

    Args:
        text: The answer.
        reference: The dataset's reference.
        query_numbers: Numbers of the query.
    """
    goal = goal_of(reference)
    if bare(text) == bare(goal):
        return PartValue(1.0, "the same as the reference")
    number = number_in(goal)
    if number is not None:
        return by_number(text, number, ELSEWHERE, TOLERANCE, FIRST, query_numbers)
    return verbal(text, goal)


def is_right(text: str, reference: str) -> bool | None:
    """Return whether an answer agrees with a reference; None for one that only words describe."""
    goal = goal_of(reference)
    if number_in(goal) is None and len(words_of(goal)) > PHRASE:
        return None
    return agreement(text, reference).value >= RIGHT


def reference(group: PartInput, sums: bool) -> list[PartValue] | None:
    """`agreement` of each answer; does not apply to a row without a reference.

    With `sums` the value of a query that is plain arithmetic replaces a missing reference; not
    where tools are offered, because a call may come before the number.
    """
    wanted, query = group.context.reference, group.context.query
    if wanted is not None:
        query_numbers = numbers_of(query[:READ_LIMIT])
        return [agreement(reading.text, wanted, query_numbers) for reading in group.readings]
    value = value_of_sum(query) if sums and not group.context.tools else None
    if value is None:
        return None
    query_numbers = numbers_of(query)
    found = [
        by_number(reading.text, value, ELSEWHERE, TOLERANCE, FIRST, query_numbers)
        for reading in group.readings
    ]
    return [PartValue(each.value, f"{each.reason}, computed from the query") for each in found]


def exact(group: PartInput, strict: bool, marked: bool) -> list[PartValue] | None:
    """1 for the same text, else 0; does not apply to a row without a reference."""

    def comparable(text: str) -> str:
        return text.strip() if strict else bare(text)

    if group.context.reference is None:
        return None
    wanted = group.context.reference
    goal = comparable(goal_of(wanted) if marked else wanted)
    values = []
    for reading in group.readings:
        conclusion = final(reading.text) if marked else None
        same = comparable(reading.text if conclusion is None else conclusion) == goal
        reason = "the same as the reference" if same else f"not {goal[:40]!r}"
        values.append(PartValue(float(same), reason))
    return values


def numeric(group: PartInput, tolerance: float, elsewhere: float) -> list[PartValue] | None:
    """1 for the right final number; does not apply where the reference is not a number."""
    wanted = group.context.reference
    goal = None if wanted is None else number_in(goal_of(wanted))
    if goal is None:
        return None
    return [by_number(reading.text, goal, elsewhere, tolerance) for reading in group.readings]


REFERENCE = PartKind(
    scored_by(reference),
    "Agreement with the dataset's reference: text, number, phrase or word F1, in this order",
    {"sums": Setting("flag", False, "without a reference: use the result of a sum in the query")},
)
EXACT = PartKind(
    scored_by(exact),
    "1 if the answer equals the dataset's reference, else 0",
    {
        "strict": Setting("flag", False, "compare case, spaces and surrounding punctuation too"),
        "marked": Setting("flag", True, "compare only the last `\\boxed{}` or `####`, if any"),
    },
)
NUMERIC = PartKind(
    scored_by(numeric),
    "1 if the answer ends with the number of the dataset's reference",
    {
        "tolerance": Setting(
            "number",
            TOLERANCE,
            "relative difference that counts as equal; by default whole numbers are exact",
            0,
            1,
        ),
        "elsewhere": Setting("number", 0.0, "value of the number if it is not at the end", 0, 1),
    },
)
