"""The examples in the help of the commands: they are accepted, and name what exists."""

import re
import shlex

import pytest

from console.cli.registry import Verb, verbs
from console.cli.tree import parse
from console.session import filters
from proxy.rewards.model.file import default_model

VERBS = dict(verbs())


def example(verb: Verb) -> list[str]:
    """The words of an example, up to a second command line."""
    return shlex.split(verb.example.partition(" && ")[0])


@pytest.mark.parametrize("name", VERBS)
def test_the_command_accepts_its_example(name: str) -> None:
    args = parse([*name.split(), *example(VERBS[name])])
    filters.parse(getattr(args, "where", None) or "")
    assert name != "watch" or filters.parse(args.filter)


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if "group." in verb.command])
def test_an_example_names_groups_by_the_beginning_of_a_hexadecimal_id(name: str) -> None:
    args = vars(parse([*name.split(), *example(VERBS[name])]))
    groups = [args["group_id"]] if "group_id" in args else args["groups"]
    assert groups or args["where"]
    assert all(re.fullmatch("[0-9a-f]{4}", group) for group in groups)


@pytest.mark.parametrize("name", ["weight", "gate", "enable", "whatif", "apply"])
def test_an_example_names_parts_of_the_built_in_rewards(name: str) -> None:
    args = parse(["rewards", name, *example(VERBS[f"rewards {name}"])])
    weights = [pair.partition("=")[0] for pair in getattr(args, "weights", ())]
    for part in weights or [args.part]:
        assert default_model().named(part) is not None


def test_the_example_of_alert_dismiss_is_the_key_of_an_alert() -> None:
    assert VERBS["alerts dismiss"].example == "lost:gpu"
