"""What the modules of a package declare, read from their sources."""

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WIDE = 88
"""Columns of a signature on one line."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Entry:
    """One public name of a module.

    Attributes:
        name: `Class`, `function`, `CONSTANT` or `Class.method`.
        doc: Its docstring, empty when it has none.
        shown: Its signature or value.
    """

    name: str
    module: str
    node: ast.AST
    doc: str
    shown: str
    members: list["Entry"] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    """Of a class: what is declared, and its attribute docstring."""


class Library:
    """All modules of a package, parsed."""

    def __init__(self, folder: Path) -> None:
        self.docs: dict[str, str] = {}
        self.entries: dict[str, dict[str, Entry]] = {}
        self._classes: dict[str, tuple[str, ast.ClassDef]] = {}
        self._sources = {
            ".".join(one.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): (
                one.read_text("utf-8")
            )
            for one in folder.rglob("*.py")
        }
        trees = {module: ast.parse(text) for module, text in self._sources.items()}
        for module in sorted(trees):
            for node in trees[module].body:
                if isinstance(node, ast.ClassDef):
                    self._classes[f"{module}.{node.name}"] = (module, node)
                    # Two modules may have a class of one name: the first keeps the short one.
                    self._classes.setdefault(node.name, (module, node))
        for module, tree in sorted(trees.items()):
            self.docs[module] = ast.get_docstring(tree) or ""
            self.entries[module] = {one.name: one for one in self._public(module, tree)}

    def doc(self, path: str) -> str:
        """The docstring of `Class`, `Class.method` or `function`; empty when there is none."""
        wanted = re.sub(r"\A(?:ajet_swarm\.)?(?:[a-z_]+\.(?=\w))*", "", path)
        for entries in self.entries.values():
            for one in entries.values():
                for found in (one, *one.members):
                    if found.name == wanted:
                        return found.doc
        return ""

    def _public(self, module: str, tree: ast.Module) -> Iterator[Entry]:
        for node, doc in _told(tree.body):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield self._class(module, node)
            elif isinstance(node, Function) and not node.name.startswith("_"):
                said = ast.get_docstring(node) or ""
                yield Entry(node.name, module, node, said, _signature(node.name, node))
            elif (declared := _declared(node)) and re.match(r"[A-Z]", declared[0]):
                shown = ast.get_source_segment(self._sources[module], node) or declared[1]
                yield Entry(declared[0], module, node, doc, shown)

    def _class(self, module: str, node: ast.ClassDef) -> Entry:
        entry = Entry(node.name, module, node, ast.get_docstring(node) or "", "")
        made: Function | None = None
        seen: set[str] = set()
        for home, one in self._line(module, node):
            for part, doc in _told(one.body):
                if isinstance(part, Function):
                    if part.name == "__init__":
                        made = made or part
                    if part.name in seen or part.name.startswith("_") or _setter(part):
                        continue
                    seen.add(part.name)
                    entry.members.append(_method(node.name, home, part))
                elif (declared := _declared(part)) and declared[0] not in seen:
                    seen.add(declared[0])
                    if not declared[0].startswith("_"):
                        entry.fields.append((declared[1], doc))
        bases = [base for base in map(ast.unparse, node.bases) if not base.startswith("_")]
        shown = ", ".join(base for base in bases if not base.startswith(("Generic", "Protocol")))
        entry.shown = f"class {node.name}({shown})".replace("()", "")
        if made and not re.search(r": '?_[A-Z]", ast.unparse(made.args)):  # else others make it
            entry.shown = _signature(node.name, made)
        return entry

    def _line(self, module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
        """A class and those it comes from within the package, nearest first."""
        yield module, node
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0]
            found = self._classes.get(f"{module}.{name}") or self._classes.get(name)
            if found is not None and found[1] is not node:
                yield from self._line(*found)


def _told(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement, with the docstring that follows it when it is an attribute's."""
    for at, node in enumerate(body):
        after = body[at + 1] if at + 1 < len(body) else None
        said = ""
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            said = inspect.cleandoc(after.value.value)
        yield node, said


def _declared(node: ast.stmt) -> tuple[str, str] | None:
    """Name and source of an assignment to one name."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        name = node.target.id
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
    else:
        return None
    shown = re.sub(r"field\(default_factory=(\w+)\)", r"\1()", _code(node))
    return name, shown.replace("= dict()", "= {}").replace("= list()", "= []")


def _code(node: ast.AST) -> str:
    """Source of a node, with the quotes of this repository."""
    return re.sub(r"'([^'\"]*)'", r'"\1"', ast.unparse(node))


def _setter(node: Function) -> bool:
    return any(ast.unparse(one).endswith((".setter", ".deleter")) for one in node.decorator_list)


def _method(owner: str, home: str, node: Function) -> Entry:
    marks = {ast.unparse(one) for one in node.decorator_list}
    doc = ast.get_docstring(node) or ""
    if marks & {"property", "cached_property"}:
        kind = f": {ast.unparse(node.returns)}" if node.returns else ""
        return Entry(f"{owner}.{node.name}", home, node, doc, f"{node.name}{kind}")
    static = "staticmethod" in marks
    shown = _signature(node.name, node, bound=not static)
    for mark in ("staticmethod", "classmethod"):
        shown = f"@{mark}\n{shown}" if mark in marks else shown
    if marks & {"contextmanager", "asynccontextmanager"}:
        shown = f"{'async ' if 'asynccontextmanager' in marks else ''}with {_bare(shown)}"
    return Entry(f"{owner}.{node.name}", home, node, doc, shown)


def _bare(shown: str) -> str:
    return re.sub(r"(Async)?Iterator\[(.*)\]\Z", r"\2", shown.removeprefix("async "))


def _signature(name: str, node: Function, bound: bool = True) -> str:
    given = node.args
    words: list[str] = []
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    for argument, default in zip(plain, [*defaults, *given.defaults], strict=True):
        words.append(_argument(argument, default))
    if bound and plain and plain[0].arg in ("self", "cls"):
        words = words[1:]
    if given.vararg:
        words.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        words.append("*")
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        words.append(_argument(argument, default))
    if given.kwarg:
        words.append("**" + _argument(given.kwarg, None))
    back = ""
    if node.returns is not None and node.name != "__init__":
        back = f" -> {_unquoted(node.returns)}"
    head = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{head}{name}({', '.join(words)}){back}"
    if len(line) <= WIDE:
        return line
    return f"{head}{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){back}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_unquoted(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return f"{argument.arg}{kind}"
    equals = " = " if kind else "="
    return f"{argument.arg}{kind}{equals}{_code(default)}"


def _unquoted(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) and node.value else ast.unparse(node)
