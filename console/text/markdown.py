"""Markdown rendered as lines of toned text, without dropping any of the text.

The text comes from a model and may contain anything, so the cost is bounded: rendering works line
by line, without HTML, references or nested emphasis. Everything else is shown as written.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len
from rich.syntax import Syntax

from console.text.lines import EMPTY, Line, fit, line_text
from console.text.wrap import PLAIN_CAP, TAB, Piece, safe, wrapped, wrapped_pieces

_FENCE = re.compile(r"^ {0,3}(`{3,20}|~{3,20})\s*([\w+#.-]{0,20})[^`]*$")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*$")
_RULE = re.compile(r"^ {0,3}([-*_])(?: *\1){2,} *$")
_QUOTE = re.compile(r"^ {0,3}> ?")
_ITEM = re.compile(r"^(\s{0,12})([-*+]|\d{1,6}[.)]) +(?:\[([ xX])\] )?")
_ROW = re.compile(r"^\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"^\s*\|?[\s:|-]+\|?\s*$")
_INLINE = re.compile(
    r"(?P<code>`[^`\n]{1,400}`)"
    r"|\*\*(?P<bold>\S(?:[^*\n]{0,400}[^\s*])?)\*\*"
    r"|~~(?P<gone>[^~\n]{1,400})~~"
    r"|(?<![\w*])\*(?P<italic>[^\s*](?:[^*\n]{0,400}[^\s*])?)\*(?![\w*])"
    r"|(?<!\w)_(?P<slanted>[^\s_](?:[^_\n]{0,400}[^\s_])?)_(?!\w)"
    r"|\[(?P<label>[^\]\n]{1,400})\]\((?P<link>[^)\s]{1,400})\)"
)
_TONES = {"bold": "bold", "italic": "italic", "slanted": "italic", "gone": "strike"}
_LONGEST = 4_000
"""Maximum length of a line that is searched for inline marks."""
_MOST_COLUMNS = 12


def markdown_lines(text: str, width: int, cap: int = PLAIN_CAP) -> list[Line]:
    """Return the lines of `text` for a width in cells; at most `cap` characters are shown."""
    width = max(1, width)
    left_out = len(text) - cap
    rows = safe(text[:cap]).replace("\t", TAB).rstrip().split("\n")
    lines = list(_blocks(rows, width))
    if left_out > 0:
        lines += [((line, "$muted"),) for line in wrapped(f"… {left_out} more characters", width)]
    return lines


def _blocks(rows: Sequence[str], width: int) -> Iterator[Line]:
    at, left = 0, CAP
    while at < len(rows):
        row = rows[at]
        if fence := _FENCE.match(row):
            start, at = at, (yield from _code(rows, at, fence, width, left))
            left -= sum(len(row) + 1 for row in rows[start + 1 : at])
        elif _ROW.match(row) and at + 1 < len(rows) and _TABLE_RULE.match(rows[at + 1]):
            at = yield from _table(rows, at, width)
        else:
            yield from _row(row, width)
            at += 1


def _row(row: str, width: int) -> Iterator[Line]:
    if not row.strip():
        yield EMPTY
    elif _RULE.match(row):
        yield (("─" * min(width, 24), "$faint"),)
    elif heading := _HEADING.match(row):
        yield from wrapped_pieces(_inline(heading[2], "bold $heading"), width)
    elif quote := _QUOTE.match(row):
        yield from _hanging(row[quote.end() :], "▎ ", "▎ ", width, "italic $muted")
    elif item := _ITEM.match(row):
        yield from _item(row, item, width)
    else:
        yield from wrapped_pieces(_inline(row, ""), width)


def _item(row: str, item: re.Match[str], width: int) -> Iterator[Line]:
    mark = "•" if item[2] in "-*+" else item[2]
    if item[3] is not None:
        mark = "☐" if item[3] == " " else "☑"
    indent = item[1][: max(0, width // 3)]
    first = f"{indent}{mark} "
    yield from _hanging(row[item.end() :], first, " " * cell_len(first), width, "")


def _hanging(text: str, first: str, rest: str, width: int, tone: str) -> Iterator[Line]:
    """Yield the text after a sign, with a hanging indent."""
    wrapped_lines = wrapped_pieces(_inline(text, tone), max(1, width - cell_len(first))) or [EMPTY]
    for place, line in enumerate(wrapped_lines):
        yield ((first if place == 0 else rest, "$muted"), *line)


def _code(
    rows: Sequence[str], at: int, fence: re.Match[str], width: int, left: int
) -> Generator[Line, None, int]:
    """Yield the lines of a code block, highlighted up to `left` characters; return its end."""
    end = at + 1
    while end < len(rows) and not rows[end].strip().startswith(fence[1]):
        end += 1
    if fence[2] or end == at + 1:
        yield ((f"▏ {fence[2] or fence[1]}", "$muted"),)
    code = tuple(row.rstrip() for row in rows[at + 1 : end])
    for pieces in code_rows(code, fence[2], max(0, left)):
        for line in wrapped_pieces(pieces, max(1, width - 2)) or [EMPTY]:
            yield (("▏ ", "$faint"), *line)
    return end + 1


def _table(rows: Sequence[str], at: int, width: int) -> Generator[Line, None, int]:
    """Yield the lines of a table, in columns where they fit; return its end."""
    end = at + 2
    while end < len(rows) and _ROW.match(rows[end]):
        end += 1
    cells = [_cells(row) for row in (rows[at], *rows[at + 2 : end])]
    count = max(len(row) for row in cells)
    widths = [max(cell_len(row[n]) if n < len(row) else 0 for row in cells) for n in range(count)]
    if sum(widths) + 3 * (count - 1) > width or count > _MOST_COLUMNS:
        for row in rows[at:end]:
            yield from wrapped_pieces(_inline(row, ""), width)
        return end
    for place, row_cells in enumerate(cells):
        pieces: list[Piece] = []
        for n, size in enumerate(widths):
            pieces.append((" │ " if n else "", "$faint"))
            text = row_cells[n] if n < len(row_cells) else ""
            pieces.append((fit(text, size), "bold" if not place else ""))
        yield tuple(pieces)
        if place == 0:
            yield (("─┼─".join("─" * size for size in widths), "$faint"),)
    return end


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _inline(text: str, tone: str) -> list[Piece]:
    """Return the text as toned pieces, without its inline marks."""
    if len(text) > _LONGEST:
        return [(text, tone)]
    pieces: list[Piece] = []
    at = 0
    for match in _INLINE.finditer(text):
        pieces.append((text[at : match.start()], tone))
        at = match.end()
        kind = match.lastgroup or ""
        if kind == "code":
            pieces.append((match["code"][1:-1], f"bold {CODE}"))
        elif kind == "link":
            pieces.append((match["label"], f"underline {tone}".strip()))
            if match["link"] != match["label"]:
                pieces.append((f" ({match['link']})", "$muted"))
        else:
            pieces.append((match[kind], f"{_TONES[kind]} {tone}".strip()))
    pieces.append((text[at:], tone))
    return [piece for piece in pieces if piece[0]]


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
_CODE_TONES = (
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
    return next((tone for begin, tone in _CODE_TONES if kind.startswith(begin)), CODE)


def _texts(rows: list[list[Piece]]) -> list[str]:
    return [line_text(row) for row in rows]
