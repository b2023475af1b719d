"""The text that replaces a secret, and tests of what a random text is like."""

import math
import re
from collections import Counter
from itertools import pairwise

_TECHNICAL = re.compile(
    r"(?i)(?<![a-z0-9])(?:sha|base|utf|iso|md|rsa|aes|oauth|http|int|uint|float|x|p|v|ipv|es|hs|rs"
    r"|mp|h)-?\d+(?![a-z0-9])"
)
_PIECE = re.compile(r"[A-Za-z0-9]+")
_CAMEL = re.compile(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*[A-Z]?")
UUID = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HEX = re.compile(r"(?i)(?:0x)?[0-9a-f]+")


def mark(kind: str) -> str:
    """Return the text in place of a secret."""
    return f"[redacted: {kind}]"


def entropy(text: str) -> float:
    """Return the Shannon entropy of the characters of a text, in bits for each character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values()) if size else 0.0


def is_mixed(text: str, digits: int = 2) -> bool:
    """Return whether a text has letters and at least that many digits besides technical terms."""
    rest = _TECHNICAL.sub("", text)
    return sum(map(str.isdigit, rest)) >= digits and any(map(str.isalpha, rest))


def is_random(text: str, least: int = 16) -> bool:
    """Return whether a text has a long piece of letters and digits without an order.

    Names, versions, paths and dates consist of short pieces.
    """
    pieces = _PIECE.findall(text)
    longest = max(pieces, key=len, default="")
    if len(longest) < min(12, least) or len(text) < least or not is_mixed(longest):
        return False
    return entropy(longest) >= 2.8


def is_odd(text: str) -> bool:
    """Return whether capitals and small letters change more often than in names in camel case."""
    if len(text) >= 12 and _CAMEL.fullmatch(text):
        return False
    letters = [one for one in text if one.isalpha()]
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(letters))
    return len(letters) >= 8 and changes * 3 >= len(letters)


def has_three_kinds(text: str) -> bool:
    """Return whether a text has capitals, small letters, and digits or an odd change of case."""
    if not any(map(str.isupper, text)) or not any(map(str.islower, text)):
        return False
    return any(map(str.isdigit, text)) or is_odd(text)
