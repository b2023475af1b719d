"""Words on screen: what a user reads is plain English, so some words never appear there again."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("console", "core", "engine", "mock", "proxy", "ajet_swarm")
DATA = (
    "engine/corpus",
    "console/templates",
    "engine/evaluation.py",
    "proxy/admission/admit.py",
)
"""Texts of others: training material, written files, prompts of client programs."""
BANNED = {
    r"\banew\b": "again, or re- before the verb",
    r"\bmended?\b": "correct or fix",
    r"without a word": "exited unexpectedly",
    r"\blast words\b": "last log lines",
    r"\bserves$|nothing serves": "active",
    r"\bwhoever\b": "the client or the operator that",
    r"\btakes? (the rating|the last vote|a rating|that) back\b": "undo",
    r"\b(rating|vote|correction)\b.* taken back": "undone or removed",
    r"\b(rated|given) by hand\b": "human-rated",
    r"the server's own(?! (rule|log))": "server default",
    r"\bis scored so\b": "applies from the next group",
    r"(^it is|groups? (that )?(is|are)|timeout is) over\b": "finished",
    r"\bsealed\b|\bseal\b": "finished, finish",
    r"\bweigh\b": "set the weight",
    r"\bstays seen\b": "state changes",
    r"\bto look at, \d+ that fail\b": "warnings, failures",
    r"\bhas the figures\b|\bor only that\b|\bor is it only that\b": "See SCREEN (KEY), or just",
    r"\btaken up\b": "used",
    r"\blook(s|ing)? on\b": "view only",
    r"\btold no\b|\bdoes not tell\b": "report",
    r"as data$": "as JSON",
}
"""Pattern of a text that a user may read -> the plain word."""
ANY = re.compile("|".join(f"(?:{pattern})" for pattern in BANNED), re.IGNORECASE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_banned_word_is_shown(folder: str) -> None:
    result = [
        f"{path.relative_to(ROOT)}:{line}: {text[:100]!r}: say {better!r}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(DATA)
        for line, text in shown(path.read_text(encoding="utf-8"))
        if ANY.search(text)
        for pattern, better in BANNED.items()
        if re.search(pattern, text, re.IGNORECASE)
    ]
    assert not result, "\n".join(result)


def test_the_guard_sees_a_banned_word() -> None:
    source = '"""Scored anew."""\nsay(f"{count} scored anew")\nlook("sealed_at")\n'
    assert list(shown(source)) == [(2, "… scored anew")]


def test_no_tooltip_contains_a_name_of_the_code() -> None:
    result = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {text!r}"
        for path in sorted((ROOT / "console").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for value in tooltips(node)
        if isinstance(value, ast.Constant) and "_" in (text := str(value.value))
    ]
    assert not result, "\n".join(result)


def tooltips(node: ast.AST) -> list[ast.expr]:
    """Return the tooltips of a binding, and of the rows of a table of keys."""
    if isinstance(node, ast.keyword) and node.arg == "tooltip":
        return [node.value]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "keys":
        rows = [row.elts for row in node.args if isinstance(row, ast.Tuple)]
        return [row[4] for row in rows if len(row) > 4]
    return []


def test_the_guard_sees_the_tooltips_of_a_table_of_keys() -> None:
    call = ast.parse('keys(("e", "edit", "Edit", "a.edit", "at_line"))', mode="eval").body
    assert [ast.literal_eval(value) for value in tooltips(call)] == ["at_line"]


def shown(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of all strings of two words and more, docstrings left out."""
    nodes = list(ast.walk(ast.parse(source)))
    skipped: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
    for node in nodes:
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = "" if id(node) in skipped else node.value
        if len(text.split()) > 1:
            yield getattr(node, "lineno", 0), " ".join(text.split())
