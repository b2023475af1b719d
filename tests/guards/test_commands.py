"""The command line has every command of the console, and the guide names them."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from console.cli.options import reading_words
from console.cli.parser import build_parser
from console.cli.registry import words_of
from core.commands import COMMANDS

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "commands.md").read_text()


def _verbs(
    parser: argparse.ArgumentParser, above: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, one in action.choices.items():
                whole = f"{above} {name}".strip()
                yield whole, one
                yield from _verbs(one, whole)


def _flags(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


VERBS = dict(_verbs(build_parser()))


def test_every_command_of_the_registry_has_a_headless_form() -> None:
    for command in COMMANDS:
        words = words_of(command)
        assert words in VERBS, f"{command}: there is no `ajet-console {words}`"


def test_the_guide_names_every_verb_and_no_other() -> None:
    table = GUIDE.partition("## Verbs")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([^`]+)`", table)) == set(VERBS)


WITHOUT_JSON = {"completion", "engine", "mcp", "proxy", "service"}
"""Verbs without `--json`: processes that run until they are ended, and files for a program."""
WITHOUT_DRY_RUN = {
    "web",
    "checkpoints", "checkpoints list", "clients", "completion", "doctor", "journal",
    "journal check", "journal stats", "mcp", "progress", "raters", "replay", "reward-test",
    "rewards", "runs", "runs compare", "runs list", "runs show", "service", "status", "token",
    "token list", "tokens", "watch",
}  # fmt: skip
"""Verbs that change nothing, and commands whose verbs have the option."""


def test_every_verb_gives_json_and_every_changing_verb_has_a_dry_run() -> None:
    flags = {verb: _flags(parser) for verb, parser in VERBS.items()}
    assert {verb for verb in VERBS if "--json" not in flags[verb]} == WITHOUT_JSON
    assert {verb for verb in VERBS if "--dry-run" not in flags[verb]} == WITHOUT_DRY_RUN
    for command in COMMANDS:  # each of them changes something
        assert "--dry-run" in flags[words_of(command)], command


def test_the_words_allowed_with_read_only_are_verbs() -> None:
    assert set(reading_words()) <= set(VERBS)


def test_every_verb_has_the_option_read_only() -> None:
    assert not [name for name, one in VERBS.items() if "--read-only" not in _flags(one)]
