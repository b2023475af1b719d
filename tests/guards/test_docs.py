"""Whatever the guides point at is there: files, headings, verbs, settings, targets, modules."""

import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import click
import msgspec
import yaml

from console.cli.tree import NAME, Tree, build
from core.commands import COMMANDS
from core.settings import Settings
from docs import reference
from docs.reference import anchor

ROOT = Path(__file__).parents[2]
GENERATED = {reference.FOLDER / name: text for name, text in reference.make().items()}
"""The pages of the reference, which are not in git."""
PAGES = sorted(
    {
        *ROOT.glob("docs/**/*.md"),
        ROOT / "README.md",
        *ROOT.glob("examples/*/README.md"),
        *ROOT.glob("console/skills/*/SKILL.md"),
        *GENERATED,
    }
)
TARGETS = set(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TARGETS = {name for line in TARGETS for name in line.split()}
_LINK = re.compile(r"(?<!\\)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LOWER = re.compile(r"[a-z][a-z-]*")
_INLINE = re.compile(r"`+([^`]+)`+")
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n?)+(?: *\n(?: {4}.*\n?)+)*", re.MULTILINE)


def text_of(page: Path) -> str:
    return GENERATED.get(page) or page.read_text()


@cache
def headings(page: Path) -> set[str]:
    """Anchors of a page; a repeated heading gets a number, as on GitHub."""
    lines: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *#*$", _FENCE.sub("", text_of(page)), re.MULTILINE):
        name = anchor(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        again = sum(1 for line in lines if re.fullmatch(rf"{re.escape(name)}(-\d+)?", line))
        lines.add(f"{name}-{again}" if again else name)
    return lines


def code(text: str) -> list[str]:
    """Everything a page sets as code, a line each."""
    fenced = _FENCE.findall(text)
    rest = _FENCE.sub("", text)
    parts = [*fenced, *_INLINE.findall(rest), *_INDENTED.findall(rest)]
    lines = [line for part in parts for line in part.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s#\s.*", "", line).strip() for line in lines]  # without a shell's comment


def wrong_links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(_INLINE.sub("", _FENCE.sub("", text_of(page)))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, part = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if file not in GENERATED and not file.exists():
            yield f"{target}: there is no such file"
        elif part and file.suffix == ".md" and part not in headings(file):
            yield f"{target}: there is no such heading"


def wrong_verbs(line: str) -> Iterator[str]:
    for value in re.findall(r"(?<![\w/.-])ajet-console((?: +[^\s|&;)#]+)*)", line):
        command: click.Command = tree_once()
        context = click.Context(command, info_name=NAME)
        words = value.split()
        while words and words[0].isascii():  # else a drawing
            word = words.pop(0)
            if isinstance(command, Tree) and command.default and not _LOWER.fullmatch(word):
                inner = command.get_command(context, command.default)
                assert inner is not None
                command, context = inner, click.Context(inner, parent=context)
            if word.startswith("-"):
                name = word.partition("=")[0]
                known = {
                    flag: param for param in command.get_params(context) for flag in param.opts
                }
                if name not in known and not word.startswith("-" * 3):
                    yield f"ajet-console{value}: there is no flag {word}"
                if words and name in known and "=" not in word and not known[name].is_flag:
                    words.pop(0)
            elif not isinstance(command, click.Group):
                break
            elif (inner := command.get_command(context, word)) is not None:
                command, context = inner, click.Context(inner, info_name=word, parent=context)
            elif _LOWER.fullmatch(word):
                yield f"ajet-console{value}: there is no verb {word}"
                break


@cache
def tree_once() -> Tree:
    return build()


def wrong_commands(page: Path) -> Iterator[str]:
    for line in code(text_of(page)):
        yield from wrong_verbs(line)
        for target in re.findall(r"(?:\A|[\s;&(])make ((?:[a-z][a-z-]*(?: |\Z))+)", line):
            for word in target.split():
                if word not in TARGETS:
                    yield f"make {word}: there is no such target"
        for module in re.findall(r"python3? -m ((?:examples|bench|docs|swarm|engine)[\w.]*)", line):
            try:
                there = importlib.util.find_spec(module)
            except ModuleNotFoundError:
                there = None
            if there is None:
                yield f"python -m {module}: there is no such module"


@cache
def setting_names() -> dict[str, set[str]]:
    """Section -> its settings."""
    return {
        field.encode_name: {inner.encode_name for inner in msgspec.structs.fields(field.type)}
        for field in msgspec.structs.fields(Settings)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    }


def wrong_settings(page: Path) -> Iterator[str]:
    sections, text = setting_names(), text_of(page)
    for line in code(text):
        for whole, section, name in re.findall(
            rf"(?<![\w./-])(({'|'.join(sections)})\.([a-z_]+))\b(?![\w/(.])", line
        ):
            file = name in ("db", "jsonl", "log", "md", "py", "yaml")
            module = (ROOT / section / f"{name}.py").exists()
            known = name in sections[section] or whole in COMMANDS
            if not (known or file or module):
                yield f"{whole}: there is no such setting"
    for block in re.findall(r"^ *```yaml\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        try:
            data = yaml.safe_load(block)
        except yaml.YAMLError:  # an extract, or one with placeholders
            continue
        for section, values in data.items() if isinstance(data, Mapping) else ():
            for name in values if isinstance(values, Mapping) else ():
                if section in sections and name not in sections[section]:
                    yield f"{section}.{name}: there is no such setting"


def test_pages_point_at_what_is_there() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {one}"
        for page in PAGES
        for one in (*wrong_links(page), *wrong_commands(page), *wrong_settings(page))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_guide_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    folders = ("guide", "library", "measured", "contributing")
    guides = {f"{name}/{file.name}" for name in folders for file in ROOT.glob(f"docs/{name}/*.md")}
    assert len(guides) > 25
    assert not [name for name in sorted(guides) if f"({name})" not in index]


def test_missing_links_and_commands_are_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A b\n\n[x](#a-b) [y](#none) [z](none.md)\n\n"
        "`ajet-console --home X nothing`, `ajet-console checkpoints nowhere` and"
        " `ajet-console run engine --none`\n\n"
        "    make nothing  # make it\n    python -m examples.nothing.at_all\n"
        "    ajet-console run engine --port 1\n"
    )
    assert [wrong.split(":")[-1] for wrong in (*wrong_links(page), *wrong_commands(page))] == [
        " there is no such heading",
        " there is no such file",
        " there is no verb nothing",
        " there is no verb nowhere",
        " there is no flag --none",
        " there is no such target",
        " there is no such module",
    ]


def test_missing_settings_are_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`proxy.port`, `proxy.nothing`, `rating.log`, `engine.main` and `engine.start`\n\n"
        "```yaml\nrating: {mode: off, moods: 1}\nother: {moods: 1}\n```\n"
        "    ```yaml\n    - <A>: {\n    ```\n"
    )
    assert list(wrong_settings(page)) == [
        "proxy.nothing: there is no such setting",
        "rating.moods: there is no such setting",
    ]
