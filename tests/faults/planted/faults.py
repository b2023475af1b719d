"""Reading and planting of the faults."""

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Fault:
    """One behaviour of the product and how to break it."""

    name: str
    promise: str
    """What users are promised, and the page or section that says so."""
    file: str
    old: str
    new: str

    def planted(self, source: str) -> str:
        """Return the source of the file with the fault in it.

        Raises:
            ValueError: the old text does not occur exactly once.
        """
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: old occurs {count} times in {self.file}")
        return source.replace(self.old, self.new)

    def probed(self, source: str, call: str) -> str:
        """Return the source with the statement `call` at the start of the function around `old`.

        Outside a function, the statement runs when the module is imported.
        """
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: old occurs {count} times in {self.file}")
        lead = len(self.old) - len(self.old.lstrip())
        line = source[: source.index(self.old) + lead].count("\n") + 1
        body = _innermost(ast.parse(source), line)
        first = body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        before = body[1] if documented and len(body) > 1 else first
        lines = source.splitlines(keepends=True)
        at = min([before.lineno, *(each.lineno for each in getattr(before, "decorator_list", ()))])
        text = lines[at - 1]
        column = len(text) - len(text.lstrip())
        lines.insert(at - 1, f"{' ' * column}{call}\n")
        return "".join(lines)


def load(folder: Path = FOLDER) -> list[Fault]:
    """Return the faults of all packages, sorted by file name and then as written."""
    return [
        Fault(**table)
        for path in sorted(folder.glob("*.toml"))
        for table in tomllib.loads(path.read_text())["fault"]
    ]


def _innermost(tree: ast.Module, line: int) -> list[ast.stmt]:
    """Return the body of the innermost function around a line, or else that of the module."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if around:
        return max(around, key=lambda node: node.lineno).body
    imports = (ast.Import, ast.ImportFrom)
    return [tree.body[0], *(each for each in tree.body[1:] if not isinstance(each, imports))]
