"""Syntax highlighting: keywords, strings, numbers, comments and names of a few languages.

The lexers come from `rich.syntax`. Because the code comes from a model, only languages with simple
lexers are highlighted, and only blocks of limited size; all other code has one plain tone.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from rich.syntax import Syntax

from console.text.lines import line_text
from console.text.wrap import Piece

CODE = "$code"
"""The tone of code that is not highlighted."""
CAP = 6_000
"""Maximum number of characters highlighted in one text."""
LONGEST = 300
"""Maximum length of a line; a block with a longer line is not highlighted."""
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
"""Lexer by the language word after the fence."""
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
"""Tone by the prefix of a token's type."""


@lru_cache(maxsize=64)
def code_rows(rows: tuple[str, ...], language: str, cap: int = CAP) -> list[list[Piece]]:
    """Return the toned pieces of each row of a block.

    Args:
        rows: Safe text without line breaks or tabs.
        language: The language word after the fence; empty for none.
        cap: Maximum size in characters; a larger block is not highlighted.

    Returns:
        One list of pieces per row.
    """
    plain = [[(row, CODE)] for row in rows]
    name = _LEXERS.get(language.lower(), "")
    size = sum(map(len, rows)) + len(rows)
    if not name or size > cap or any(len(row) > LONGEST for row in rows):
        return plain
    text = "\n".join(rows)
    toned: list[list[Piece]] = [[]]
    for part, tone in _pieces(text, name):
        first, *others = part.split("\n")
        if first:
            toned[-1].append((first, tone))
        for other in others:
            toned.append([(other, tone)] if other else [])
    return toned if _texts(toned) == list(rows) else plain


def _pieces(text: str, name: str) -> Iterator[Piece]:
    """Split the text into toned pieces without adding or dropping characters."""
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


def _texts(rows: list[list[Piece]]) -> list[str]:
    return [line_text(row) for row in rows]
