"""The command line has every command of the console, and the guide names them."""

import re
from pathlib import Path

from console.cli import registry
from console.cli.registry import reading_words
from core.commands import COMMANDS
from tests.support.commands.tree import flags, groups, params, verbs

_GUIDES = Path(__file__).parents[2] / "docs" / "guide"
GUIDE = (_GUIDES / "commands.md").read_text()
WATCHING = (_GUIDES / "watching.md").read_text()
_ROW = re.compile(r"^\| `([a-z][a-z -]*)` \|(.*)\|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
ROWS = {name: rest for name, rest in _ROW.findall(GUIDE)}


VERBS = verbs()
NAMES = {verb.command: name for name, verb in registry.verbs() if verb.command}


def test_every_command_of_the_registry_has_a_headless_form() -> None:
    for command in COMMANDS:
        assert command in NAMES, f"{command}: no verb sends it"
        assert command in ROWS.get(NAMES[command], ""), f"commands.md does not name {command}"


def test_the_guide_names_every_verb_and_no_other() -> None:
    assert set(ROWS) == {*VERBS, *groups()}


def test_the_guide_says_which_verbs_give_data() -> None:
    for verb, command in VERBS.items():
        for flag in ("--json", "--dry-run"):
            assert (f"`{flag}`" in ROWS[verb]) == (flag in flags(command)), (verb, flag)


WITHOUT_JSON = {"completion", "engine", "mcp", "proxy", "service"}
"""Verbs without `--json`: processes that run until they are ended, and files for a program."""
WITHOUT_DRY_RUN = {
    "web",
    "checkpoints list", "clients", "completion", "doctor", "journal check", "journal stats", "mcp",
    "progress", "raters", "replay", "reward-test", "rewards", "runs compare", "runs list",
    "runs show", "service", "status", "token list", "tokens", "watch",
}  # fmt: skip
"""Verbs that change nothing."""


def test_every_verb_gives_json_and_every_changing_verb_has_a_dry_run() -> None:
    known = {verb: flags(command) for verb, command in VERBS.items()}
    assert {verb for verb in VERBS if "--json" not in known[verb]} == WITHOUT_JSON
    assert {verb for verb in VERBS if "--dry-run" not in known[verb]} == WITHOUT_DRY_RUN
    for command in COMMANDS:  # each of them changes something
        assert "--dry-run" in known[NAMES[command]], command


def test_the_guide_names_what_is_allowed_with_read_only() -> None:
    allowed = WATCHING.partition("refuses everything\nexcept ")[2].partition(". ")[0]
    assert sorted(_CODE.findall(allowed)) == reading_words()
    assert set(reading_words()) <= set(VERBS)


def test_every_verb_has_the_option_read_only() -> None:
    assert not [name for name, verb in VERBS.items() if "--read-only" not in flags(verb)]


def test_the_guide_names_every_verb_with_the_option_all() -> None:
    abouts = {
        name: param.help or ""
        for name, command in VERBS.items()
        for param in params(command)
        if "--all" in param.opts
    }
    parallel = {name for name, about in abouts.items() if about == "every swarm server"}
    in_turn = {name for name, about in abouts.items() if "one after the other" in about}
    text = GUIDE.partition("`--all` selects all servers.")[2].partition("\n\n")[0]
    for title, named in (("In parallel:", parallel), ("One after the other:", in_turn)):
        assert set(_CODE.findall(text.partition(title)[2].partition(".")[0])) == named
    others = {
        word.removesuffix(" --all") for word in _CODE.findall(text) if word.endswith(" --all")
    }
    assert others == {name for name, about in abouts.items() if "swarm server" not in about}
