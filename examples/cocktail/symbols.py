"""Exact arithmetic: the value of an expression, and of the last expression in a text."""

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

LONGEST: Final = 60
"""Maximum length of an expression in characters."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_EXPRESSION = re.compile(r"[-+(]*\d[\d\s.+*/()×÷-]*")
_BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value_of(expression: str) -> Fraction | None:
    """Return the value of an expression of `+ - * /`; None for any other text."""
    if len(expression) > LONGEST:
        return None
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def last_value(text: str, asked: str = "") -> Fraction | None:
    """Return the value of the last expression in a text: `14/2`, `3 + 4` and `7` are equal.

    Args:
        text: An answer.
        asked: What was to be worked out. Said again it is worth None: `3 + 4` is no answer to
            itself, nor is `4 + 3` or `3 + 4 + 0`.
    """
    for match in reversed(_EXPRESSION.findall(text.replace("×", "*").replace("÷", "/"))):
        value = value_of(match.rstrip(" .+*/(-"))
        if value is not None:
            return None if asked and _numbers(asked) <= _numbers(match) else value
    return None


def _numbers(expression: str) -> Counter[Fraction]:
    return Counter(map(Fraction, _NUMBER.findall(expression)))


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        done = _BINARY[type(node.op)](_value(node.left), _value(node.right))
        return Fraction(done)
    raise ValueError("no arithmetic")
