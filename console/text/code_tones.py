"""Code in pieces with tones: keywords, strings, numbers, comments and names of a few languages.

The lexers are those of `rich.syntax`. The code comes from a model, so only languages with simple
lexers are read, and only so much of a block; what is not read keeps the plain tone of code.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from rich.syntax import Syntax

from console.text.wrap import Piece

CODE = "$code"
"""The tone of code that no lexer reads."""
CAP = 6_000
"""Characters of code that a lexer reads for one text."""
LONGEST = 300
"""Characters of a line beyond which its block is not read."""
_LEXERS = {
    "bash": "bash",
    "sh": "bash",
    "shell": "bash",
    "c": "c",
    "cpp": "cpp",
    "c++": "cpp",
    "css": "css",
    "diff": "diff",
    "go": "go",
    "html": "html",
    "java": "java",
    "js": "javascript",
    "javascript": "javascript",
    "json": "json",
    "py": "python",
    "python": "python",
    "python3": "python",
    "rs": "rust",
    "rust": "rust",
    "sql": "sql",
    "toml": "toml",
    "ts": "typescript",
    "typescript": "typescript",
    "yaml": "yaml",
    "yml": "yaml",
}
"""Lexer by the word behind the fence."""
_TONES = (
    ("Token.Comment", "italic $code-comment"),
    ("Token.Keyword", "$code-keyword"),
    ("Token.Operator.Word", "$code-keyword"),
    ("Token.Name.Tag", "$code-keyword"),
    ("Token.Literal.String", "$code-string"),
    ("Token.Literal.Number", "$code-number"),
    ("Token.Name.Function", "$code-name"),
    ("Token.Name.Class", "$code-name"),
    ("Token.Name.Decorator", "$code-name"),
    ("Token.Name.Builtin", "$code-name"),
    ("Token.Name.Attribute", "$code-name"),
    ("Token.Generic.Inserted", "$reward-up"),
    ("Token.Generic.Deleted", "$reward-down"),
    ("Token.Generic.Subheading", "$code-keyword"),
)
"""Tone by the beginning of a token's type."""


@lru_cache(maxsize=64)
def code_rows(rows: tuple[str, ...], language: str, cap: int = CAP) -> list[list[Piece]]:
    """The pieces of each row of a block; as many rows as there are in `rows`.

    Args:
        rows: Safe text without line ends or tabs.
        language: The word behind the fence; empty for none.
        cap: Characters beyond which the block is not read.
    """
    plain = [[(row, CODE)] for row in rows]
    name = _LEXERS.get(language.lower(), "")
    size = sum(map(len, rows)) + len(rows)
    if not name or size > cap or any(len(row) > LONGEST for row in rows):
        return plain
    text = "\n".join(rows)
    found: list[list[Piece]] = [[]]
    for part, tone in _pieces(text, name):
        first, *others = part.split("\n")
        if first:
            found[-1].append((first, tone))
        for other in others:
            found.append([(other, tone)] if other else [])
    return found if _said(found) == list(rows) else plain


def _pieces(text: str, name: str) -> Iterator[Piece]:
    """`text` in tones, nothing added and nothing left out."""
    lexer = Syntax("", name).lexer
    if lexer is None:
        yield text, CODE
        return
    starts: list[tuple[int, str]] = []
    for at, kind, _ in lexer.get_tokens_unprocessed(text):
        tone = _tone(str(kind))
        if not starts or starts[-1][1] != tone:
            starts.append((at, tone))
    ends = [*starts, (len(text), CODE)]
    for (start, tone), (end, _) in pairwise(ends):
        if start < end:
            yield text[start:end], tone


@lru_cache(maxsize=256)
def _tone(kind: str) -> str:
    return next((tone for begin, tone in _TONES if kind.startswith(begin)), CODE)


def _said(rows: list[list[Piece]]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]
