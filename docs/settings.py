"""Write docs/settings.md: every setting of config.yaml and of the rewards file.

Names, defaults and descriptions come from `core.settings` and from the kinds of reward parts;
`make reference` writes the page, and a guard compares it.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from proxy.rewards.part import KINDS, Setting

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "settings.md"
SOURCE = ROOT / "core" / "settings" / "__init__.py"
HEAD = ["| setting | default | meaning |", "|---|---|---|"]


def make() -> str:
    """Return the page."""
    lines = [
        "# Settings",
        "",
        "Written by `make reference` from the descriptions in the code.",
        "",
        "## config.yaml",
        "",
        "Flags have precedence over the environment, and it over the file:",
        "`AJET_CONSOLE__PROXY__PORT=8001` sets `proxy.port`.",
        "",
        *HEAD,
        *_rows("Settings", ""),
        "",
        "## Reward parts",
        "",
        "In `rewards.yaml`, each part has a kind and its settings ([rewards](guide/rewards.md),",
        "[judge](guide/judge.md)).",
    ]
    for name, kind in KINDS.items():
        gate = ", a gate by default" if kind.gate else ""
        lines += ["", f"### {name}", "", f"{kind.help}{gate}."]
        if kind.settings:
            lines += ["", *HEAD, *_kind_rows(kind.settings)]
    return "\n".join(lines) + "\n"


def _classes() -> Mapping[str, ast.ClassDef]:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _rows(class_name: str, before: str) -> Iterator[str]:
    """Yield the rows of a section, those of its own sections in place of theirs."""
    classes = _classes()
    body = classes[class_name].body
    for at, node in enumerate(body):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        name = node.target.id
        annotation = ast.unparse(node.annotation)
        section = next((known for known in classes if known in annotation), "")
        if annotation.startswith("dict") and section:
            yield from _rows(section, "servers.NAME.")
        elif section:
            yield from _rows(section, f"{name}.")
        else:
            text = _docstring(body[at + 1 : at + 2])
            if "Literal" in annotation:
                choices = ast.parse(annotation, mode="eval").body
                assert isinstance(choices, ast.Subscript)
                words = [f"`{word}`" for word in ast.literal_eval(choices.slice)]
                text = f"{', '.join(words)}. {text}".strip()
            yield _row(f"{before}{name}", _default(node.value), text)


def _docstring(following: list[ast.stmt]) -> str:
    for node in following:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return ""


def _default(value: ast.expr | None) -> str:
    try:
        default = ast.literal_eval(value) if value is not None else ""
    except ValueError:  # a constant by name, or a factory
        return "tiny" if isinstance(value, ast.Name) else ""
    return "null" if default is None else _shown(default)


def _shown(default: object) -> str:
    if default is None or default == {}:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def _kind_rows(settings: Mapping[str, Setting]) -> Iterator[str]:
    for name, setting in settings.items():
        shown = "must be given" if setting.default is ... else _shown(setting.default)
        choices = ", ".join(f"`{word}`" for word in setting.choices)
        yield _row(name, shown, f"{setting.help} ({choices})" if choices else setting.help)


def _row(name: str, default: str, meaning: str) -> str:
    text = " ".join(meaning.replace("docs/guide/", "guide/").split()).replace("|", "\\|")
    return f"| `{name}` | {default} | {text} |"


def main() -> int:
    """Write the page."""
    PAGE.write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
