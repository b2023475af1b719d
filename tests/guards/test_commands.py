"""The command line has every command of the console, and the guide names them."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from console.cli.parser import build_parser
from console.cli.registry import words_of
from core.commands import COMMANDS

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "commands.md").read_text()
_ROW = re.compile(r"^\| `([a-z][a-z -]*)` \|(.*)\|$", re.MULTILINE)
ROWS = {name: rest for name, rest in _ROW.findall(GUIDE)}


def _verbs(
    parser: argparse.ArgumentParser, above: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                whole = f"{above} {name}".strip()
                yield whole, one
                yield from _verbs(one, whole)


VERBS = dict(_verbs(build_parser()))


def test_every_command_of_the_registry_has_a_headless_form() -> None:
    for command in COMMANDS:
        words = words_of(command)
        assert words in VERBS, f"{command}: there is no `ajet-console {words}`"
        assert command in ROWS.get(words, ""), f"docs/guide/commands.md does not name {command}"


def test_the_guide_names_every_verb_and_no_other() -> None:
    assert set(ROWS) == set(VERBS)


def test_the_guide_says_which_verbs_give_data() -> None:
    for verb in VERBS:
        flags = {flag for action in VERBS[verb]._actions for flag in action.option_strings}
        assert ("`--json`" in ROWS[verb]) == ("--json" in flags), verb
