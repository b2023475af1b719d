"""Writes docs/library/reference from the docstrings and signatures of the client library.

.venv/bin/python -m docs.reference           # writes the pages
.venv/bin/python -m docs.reference --check   # exit code 1 when one of them is out of date

Sources are read, never run: what is on a page is what stands there.
"""

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Final

from docs.sources import Entry, Function, Library

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "library" / "reference"
COMMAND = "make reference"
GROUPS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "Clients and episodes": {
        "client.synchronous": ("SwarmClient",),
        "client.asynchronous": ("AsyncSwarm",),
        "client.episode": ("Episode", "AsyncEpisode"),
        "client.multi_server": (
            "JointSwarm",
            "AsyncJointSwarm",
            "JointEpisode",
            "AsyncJointEpisode",
        ),
        "protocol.claim_models": (),
    },
    "What a script hands around": {
        "protocol.task": (),
        "protocol.agentjet_job": (),
        "protocol.job": (),
        "data.readers": (),
        "data.files": ("DatasetError",),
    },
    "Running many": {
        "runs.episodes": (),
        "runs.retry": ("Retry", "ONCE", "FOREVER", "retry_with_backoff"),
        "runs.record": (),
        "runs.executors": (),
        "common.repeats": (),
    },
    "What the server says": {
        "protocol.errors": (),
        "api.outcomes": (
            "EndOutcome",
            "EndKind",
            "Claimed",
            "ClaimRefused",
            "RefusedKind",
            "ChatAnswer",
        ),
        "protocol.schemas": (),
    },
    "One episode under the glass": {"debug": (), "debug.trace": ()},
    "Below: single requests, without waiting": {
        "api.engine": ("AsyncSwarmClient",),
        "api.watcher": ("Watcher", "ServerStatus"),
        "claims.claimer": ("GroupClaimer",),
        "api.interface": ("SwarmApi",),
        "http.interface": (),
        "http.transport": (),
    },
}
"""Group -> page (a module of `ajet_swarm`) -> its names; none named: all that are public."""
_SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields):(?: (.+))?$")
_SEE = re.compile(r"\ASee `([\w.]+)`[.:]\s*")
_NAME = re.compile(r"`((?:ajet_swarm\.)?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`")


class Writer:
    """Entries as Markdown, names linked to where they stand."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.chosen = {
            module: chosen(library, module, names)
            for pages in GROUPS.values()
            for module, names in pages.items()
        }
        self._links = {
            one.name: f"{module}.md#{anchor(one.name)}"
            for module, entries in reversed(self.chosen.items())
            for entry in entries
            for one in (entry, *entry.members)
        }

    def pages(self) -> dict[str, str]:
        """File name -> text, the index among them."""
        made = {f"{module}.md": self._page(module, all_) for module, all_ in self.chosen.items()}
        return {"README.md": self._index(), **made}

    def _index(self) -> str:
        lines = [
            "# Reference of the client library",
            "",
            f"Made from docstrings and signatures by `{COMMAND}`; how to use them is in",
            "[the guide of the library](../README.md).",
        ]
        for group, pages in GROUPS.items():
            lines += ["", f"## {group}", "", "| module | holds |", "|---|---|"]
            for module in pages:
                names = ", ".join(
                    f"[`{one.name}`]({module}.md#{anchor(one.name)})"
                    for one in self.chosen[module]
                    if isinstance(one.node, ast.ClassDef | Function)
                )
                lines.append(f"| [`ajet_swarm.{module}`]({module}.md) | {names} |")
        return "\n".join(lines) + "\n"

    def _page(self, module: str, entries: Sequence[Entry]) -> str:
        lines = [f"# `ajet_swarm.{module}`", "", *self._text(self._library.docs[module], module)]
        constants = [one for one in entries if isinstance(one.node, ast.Assign | ast.AnnAssign)]
        for entry in entries:
            if entry not in constants:
                lines += self._entry(entry, module)
        if constants:
            lines += ["", "## Constants"]
            for one in constants:
                lines += ["", f"### {one.name}", "", "```python", one.shown, "```"]
                lines += ["", *self._text(one.doc, module)] if one.doc else []
        lines += ["", f"<!-- made by `{COMMAND}`; change the docstrings -->"]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"

    def _entry(self, entry: Entry, module: str) -> list[str]:
        lines = ["", f"## {entry.name}", "", "```python", entry.shown, "```", ""]
        lines += self._docstring(entry, module, entry.fields)
        for one in entry.members:
            lines += ["", f"### {one.name}", "", "```python", one.shown, "```", ""]
            lines += self._docstring(one, module, ())
        return lines

    def _docstring(self, entry: Entry, module: str, fields: Sequence[tuple[str, str]]) -> list[str]:
        whole, sections = split(self.whole(entry.doc))
        lines = self._text(whole, module)
        told = dict(sections.pop("Attributes", {}))
        listed: list[str] = []
        for shown, doc in fields:
            name = re.split(r"[:= ]", shown, maxsplit=1)[0]
            said = doc or told.pop(name, "")
            listed.append(self._item(shown, said, module))
        listed += [self._item(name, said, module) for name, said in told.items()]
        if listed:
            lines += ["", "Fields:", "", *listed]
        for title, given in sections.items():
            lines += ["", f"{'Arguments' if title == 'Args' else title}:"]
            if "" in given:
                lines[-1] += " " + self._linked(" ".join(given[""].split()), module)
                continue
            lines += ["", *(self._item(name, said, module) for name, said in given.items())]
        return lines

    def whole(self, doc: str) -> str:
        """A docstring; of one that says `See X.y`, the other one's with what is added."""
        found = _SEE.match(doc)
        if found is None:
            return doc
        other = self.whole(self._library.doc(found[1]))
        more = doc[found.end() :]
        if not other or not more:
            return other or doc
        first, gap, rest = other.partition("\n\n")
        return f"{first}\n\n{more}{gap}{rest}"

    def _item(self, name: str, said: str, module: str) -> str:
        text = self._linked(" ".join(said.split()), module)
        shown = (
            f"`{name}`"
            if re.search(r"[:=(]", name) or "," not in name
            else (", ".join(f"`{one.strip()}`" for one in name.split(",")))
        )
        return f"- {shown}: {text}" if text else f"- {shown}"

    def _text(self, text: str, module: str) -> list[str]:
        """Paragraphs; a drawing or an indented example stays as it is."""
        lines: list[str] = []
        for part in text.split("\n\n"):
            if "├" in part:
                lines += ["```", *part.splitlines(), "```", ""]
            elif part.startswith("    ") or part.lstrip().startswith(("-", "```")):
                lines += [part, ""]
            else:
                lines += [self._linked(part, module), ""]
        return lines[:-1]

    def _linked(self, text: str, module: str) -> str:
        def link(found: re.Match[str]) -> str:
            name = re.sub(r"\Aajet_swarm\.(?:[a-z_]+\.)*(?=\w)", "", found[1])
            page = found[1].removeprefix("ajet_swarm.")
            at = self._links.get(name, "").removeprefix(f"{module}.md")
            if name.islower() and "_" not in name:  # most likely an argument
                at = f"{page}.md" if page in self.chosen and page != found[1] != module else ""
            return f"[`{found[1]}`]({at})" if at else found[0]

        return _NAME.sub(link, text)


def chosen(library: Library, module: str, names: Sequence[str]) -> list[Entry]:
    """What of a module is on its page.

    Raises:
        KeyError: it has no such name.
    """
    there = library.entries[module]
    if names:
        return [there[name] for name in names]
    return [one for one in there.values() if one.doc or not isinstance(one.node, ast.Assign)]


def split(doc: str) -> tuple[str, dict[str, dict[str, str]]]:
    """A Google docstring: its text, and section -> name -> what is said of it.

    What a section says without names is under the name "".
    """
    text: list[str] = []
    sections: dict[str, list[str]] = {}
    into = text
    for line in doc.splitlines():
        if found := _SECTION.match(line):
            into = sections.setdefault(found[1], [])
            into += [f"    : {found[2]}"] if found[2] else []  # said in a sentence, for no name
        elif line and not line.startswith(" ") and into is not text:
            into = text  # text after a section
            into.append(line)
        else:
            into.append(line)
    named: dict[str, dict[str, str]] = {}
    for title, lines in sections.items():
        body = dedent("\n".join(lines)).strip("\n")
        if title in ("Returns", "Yields"):
            named[title] = {"": body.removeprefix(": ")}
            continue
        entries = re.split(r"^(?=\S)", body, flags=re.MULTILINE)
        pairs = [one.partition(":") for one in entries if one.strip()]
        named[title] = {name.strip(): said for name, _, said in pairs}
    return "\n".join(text).strip(), named


def anchor(heading: str) -> str:
    """What a heading is called in a link, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def make() -> dict[str, str]:
    """Every page of the reference: file name -> text."""
    return Writer(Library(ROOT / "ajet_swarm")).pages()


def main(argv: Sequence[str]) -> int:
    """Write the pages, or compare them; the exit code."""
    pages = make()
    there = {one.name: one.read_text("utf-8") for one in FOLDER.glob("*.md")}
    if "--check" in argv:
        wrong = sorted(name for name in {*pages, *there} if pages.get(name) != there.get(name))
        if wrong:
            sys.stderr.write(f"out of date: {', '.join(wrong)}; run: {COMMAND}\n")
        return int(bool(wrong))
    FOLDER.mkdir(exist_ok=True)
    for name in there.keys() - pages.keys():
        (FOLDER / name).unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
