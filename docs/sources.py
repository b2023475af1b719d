"""Public declarations of a package's modules, read from their sources."""

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WIDE = 88
"""Maximum columns of a signature on one line."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Entry:
    """One public name of a module.

    Attributes:
        name: `Class`, `function`, `CONSTANT` or `Class.method`.
        doc: Its docstring; empty without one.
        shown: Its signature or value.
    """

    name: str
    module: str
    node: ast.AST
    doc: str
    shown: str
    members: list["Entry"] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    """Declaration and docstring of each attribute of a class."""


class Library:
    """All modules of a package, parsed."""

    def __init__(self, folder: Path) -> None:
        self.docs: dict[str, str] = {}
        self.entries: dict[str, dict[str, Entry]] = {}
        self._classes: dict[str, tuple[str, ast.ClassDef]] = {}
        trees = {
            ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): (
                ast.parse(path.read_text("utf-8"))
            )
            for path in folder.rglob("*.py")
        }
        for module in sorted(trees):
            for node in trees[module].body:
                if isinstance(node, ast.ClassDef):
                    self._classes[f"{module}.{node.name}"] = (module, node)
                    # the short name belongs to the first module with a class of this name
                    self._classes.setdefault(node.name, (module, node))
        for module, tree in sorted(trees.items()):
            self.docs[module] = ast.get_docstring(tree) or ""
            self.entries[module] = {entry.name: entry for entry in self._public(module, tree)}

    def doc(self, path: str) -> str:
        """Return the docstring of `Class`, `Class.method` or `function`; empty without one."""
        name = re.sub(r"\A(?:ajet_swarm\.)?(?:[a-z_]+\.(?=\w))*", "", path)
        for entries in self.entries.values():
            for entry in entries.values():
                for candidate in (entry, *entry.members):
                    if candidate.name == name:
                        return candidate.doc
        return ""

    def _public(self, module: str, tree: ast.Module) -> Iterator[Entry]:
        for node, doc in _with_docs(tree.body):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield self._class(module, node)
            elif isinstance(node, Function) and not node.name.startswith("_"):
                docstring = ast.get_docstring(node) or ""
                yield Entry(node.name, module, node, docstring, _signature(node.name, node))
            elif (declared := _declared(node)) and re.match(r"[A-Z]", declared[0]):
                yield Entry(declared[0], module, node, doc, _code(node))

    def _class(self, module: str, node: ast.ClassDef) -> Entry:
        entry = Entry(node.name, module, node, ast.get_docstring(node) or "", "")
        constructor: Function | None = None
        seen: set[str] = set()
        for home, base_class in self._ancestry(module, node):
            for statement, doc in _with_docs(base_class.body):
                part = self._awaited(statement) or statement
                if isinstance(part, Function):
                    if part.name == "__init__":
                        constructor = constructor or part
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
        # a constructor with private types is not called by users
        if constructor and not re.search(r": '?_[A-Z]", ast.unparse(constructor.args)):
            entry.shown = _signature(node.name, constructor)
        return entry

    def _awaited(self, part: ast.stmt) -> Function | None:
        """Return the method that `name = _waiting(Class.method)` defines; None for the rest.

        `_holding` defines a context of a blocking episode, and `_part` the method of a part.
        """
        pattern = r"(\w+) = _(\w+)\((?:'\w+', )?(\w+)\.\1(?:, .*)?\)"
        match = re.fullmatch(pattern, ast.unparse(part))
        if match is None:
            return None
        for _, owner in self._ancestry(*self._classes[match[3]]):
            for statement in owner.body:
                method = self._awaited(statement) or statement
                if isinstance(method, ast.AsyncFunctionDef) and method.name == match[1]:
                    if match[2] == "part":
                        return method
                    parts = {name: getattr(method, name) for name in method._fields}
                    if match[2] == "holding":
                        returned = ast.unparse(parts["returns"]).replace("Async", "")
                        parts["returns"] = ast.parse(returned, mode="eval").body
                        parts["decorator_list"] = [ast.Name("contextmanager")]
                    return ast.copy_location(ast.FunctionDef(**parts), method)
        raise LookupError(match[0])

    def _ancestry(self, module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
        """Yield a class and its base classes within the package, nearest first."""
        yield module, node
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0]
            known = self._classes.get(f"{module}.{name}") or self._classes.get(name)
            if known is not None and known[1] is not node:
                yield from self._ancestry(*known)


def _with_docs(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with the docstring that follows an attribute; empty without one."""
    for index, node in enumerate(body):
        after = body[index + 1] if index + 1 < len(body) else None
        doc = ""
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            doc = inspect.cleandoc(after.value.value)
        yield node, doc


def _declared(node: ast.stmt) -> tuple[str, str] | None:
    """Return name and source of an assignment to one name; None for another statement."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        name = node.target.id
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
    else:
        return None
    shown = re.sub(r"field\(default_factory=(\w+)\)", r"\1()", _code(node))
    return name, shown.replace("= dict()", "= {}").replace("= list()", "= []")


def _code(node: ast.AST) -> str:
    """Return the source of a node, with double quotes."""
    return re.sub(r"'([^'\"]*)'", r'"\1"', ast.unparse(node))


def _setter(node: Function) -> bool:
    decorators = map(ast.unparse, node.decorator_list)
    return any(decorator.endswith((".setter", ".deleter")) for decorator in decorators)


def _method(owner: str, home: str, node: Function) -> Entry:
    marks = {ast.unparse(decorator) for decorator in node.decorator_list}
    doc = ast.get_docstring(node) or ""
    if marks & {"property", "cached_property"}:
        kind = f": {ast.unparse(node.returns)}" if node.returns else ""
        return Entry(f"{owner}.{node.name}", home, node, doc, f"{node.name}{kind}")
    static = "staticmethod" in marks
    shown = _signature(node.name, node, bound=not static)
    for mark in ("staticmethod", "classmethod"):
        shown = f"@{mark}\n{shown}" if mark in marks else shown
    if marks & {"contextmanager", "asynccontextmanager"}:
        bare = re.sub(r"(Async)?Iterator\[(.*)\]\Z", r"\2", shown.removeprefix("async "))
        shown = f"{'async ' if 'asynccontextmanager' in marks else ''}with {bare}"
    return Entry(f"{owner}.{node.name}", home, node, doc, shown)


def _signature(name: str, node: Function, bound: bool = True) -> str:
    args = node.args
    parts: list[str] = []
    positional = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
    for argument, default in zip(positional, [*defaults, *args.defaults], strict=True):
        parts.append(_argument(argument, default))
    if bound and positional and positional[0].arg in ("self", "cls"):
        parts = parts[1:]
    if args.vararg:
        parts.append("*" + _argument(args.vararg, None))
    elif args.kwonlyargs:
        parts.append("*")
    for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        parts.append(_argument(argument, default))
    if args.kwarg:
        parts.append("**" + _argument(args.kwarg, None))
    returns = ""
    if node.returns is not None and node.name != "__init__":
        returns = f" -> {_unquoted(node.returns)}"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{prefix}{name}({', '.join(parts)}){returns}"
    if len(line) <= WIDE:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_unquoted(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return f"{argument.arg}{kind}"
    equals = " = " if kind else "="
    return f"{argument.arg}{kind}{equals}{_code(default)}"


def _unquoted(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) and node.value else ast.unparse(node)
