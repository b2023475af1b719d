"""The command line has every command of the console, and the guide names them."""

import re
from pathlib import Path

from console.cli import registry
from console.cli.registry import reading_words
from core.commands import COMMANDS
from tests.support.commands.tree import flags, groups, verbs

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "commands.md").read_text()


VERBS = verbs()
NAMES = {verb.command: name for name, verb in registry.verbs() if verb.command}
TOP = 25
"""Entries of the program's help that fit a screen."""


def test_every_command_of_the_registry_has_a_headless_form() -> None:
    for command in COMMANDS:
        assert command in NAMES, f"{command}: no verb sends it"


def test_the_guide_names_every_verb_and_no_other() -> None:
    table = GUIDE.partition("## Verbs")[2].partition("\n|")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([^`]+)`", table)) == {*VERBS, *groups()}


WITHOUT_JSON = {"completion", "run engine", "run mcp", "run proxy", "run service"}
"""Verbs without `--json`: processes that run until they are ended, and files for a program."""
WITHOUT_DRY_RUN = {
    "run web",
    "alerts list", "checkpoints list", "clients", "completion", "doctor", "engine tokens",
    "journal check", "journal replay", "journal stats", "progress show", "rating raters",
    "rewards show", "rewards test", "run mcp", "run service", "runs compare", "runs list",
    "runs show", "status", "tokens list", "watch",
}  # fmt: skip
"""Verbs that change nothing."""


def test_every_verb_gives_json_and_every_changing_verb_has_a_dry_run() -> None:
    known = {verb: flags(command) for verb, command in VERBS.items()}
    assert {verb for verb in VERBS if "--json" not in known[verb]} == WITHOUT_JSON
    assert {verb for verb in VERBS if "--dry-run" not in known[verb]} == WITHOUT_DRY_RUN
    for command in COMMANDS:  # each of them changes something
        assert "--dry-run" in known[NAMES[command]], command


def test_the_words_allowed_with_read_only_are_verbs() -> None:
    assert set(reading_words()) <= set(VERBS)


def test_every_verb_has_the_option_read_only() -> None:
    assert not [name for name, verb in VERBS.items() if "--read-only" not in flags(verb)]


def test_the_help_of_the_program_fits_a_screen() -> None:
    assert sum(len(entries) for entries in registry.SECTIONS.values()) <= TOP
    assert all(not verb.partition(" ")[2].count(" ") for verb in VERBS)
