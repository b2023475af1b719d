"""The tools that the registry of commands gives, and their schemas."""

import re

import pytest
from jsonschema import Draft202012Validator

from ajet_swarm.common.errors import UsageError
from console.mcp.confirmation import CONFIRMED_ARGUMENTS
from console.mcp.schema import NEEDS_CONTENT, READING, check_names, tool_name, tools
from core.commands import COMMANDS

ALL = tools("act", content=True, local=True)


def test_the_read_role_has_no_tool_that_sends_a_command() -> None:
    offered = tools("read", content=True, local=True)
    assert set(offered) == {one.name for one in READING}
    assert all(one.command is None for one in offered.values())


def test_each_command_is_one_tool_with_a_valid_name() -> None:
    assert set(ALL) == {one.name for one in READING} | {tool_name(one) for one in COMMANDS}
    assert len(ALL) == len(READING) + len(COMMANDS)
    assert all(re.fullmatch(r"[a-z_]{1,64}", name) for name in ALL)


def test_each_schema_is_valid_and_has_the_arguments_of_the_command() -> None:
    for one in ALL.values():
        Draft202012Validator.check_schema(one.schema)
        if one.command is None:
            continue
        confirms = one.command.danger or one.command.name in CONFIRMED_ARGUMENTS
        own = {"dry_run", "confirm"} if confirms else {"dry_run"}
        assert set(one.schema["properties"]) == {arg.name for arg in one.command.args} | own
        assert ("Destructive" in one.about) == one.command.danger
        required = [arg.name for arg in one.command.args if arg.required]
        assert one.schema.get("required", []) == required
    rate = Draft202012Validator(ALL["group_rate"].schema)
    assert rate.is_valid({"group_id": "g", "rating": "best", "order": [1]})
    assert not rate.is_valid({"group_id": "g", "rating": "good"})
    assert not rate.is_valid({"group_id": "g", "rating": "best", "order": ["1"]})
    assert not rate.is_valid({"group_id": "g", "rating": "tie", "more": 1})


def test_commands_about_texts_and_of_the_home_are_left_out_where_they_cannot_work() -> None:
    without = tools("act", content=False, local=False)
    hidden = {*NEEDS_CONTENT, *(one.name for one in COMMANDS.values() if one.where == "console")}
    assert set(ALL) - set(without) == {tool_name(name) for name in hidden}


@pytest.mark.parametrize(
    ("tool", "args", "why"),
    [
        ("status", {"x": 1}, "takes no `x`"),
        ("group", {}, "needs `group_id`"),
        ("group", {"group_id": 5}, "must be a string"),
        ("groups", {"limit": "ten"}, "must be a whole number"),
        ("groups", {"limit": True}, "must be a whole number"),
        ("engine_stop", {"force": True}, "takes no `force`"),
    ],
)
def test_wrong_arguments_are_refused(tool: str, args: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_names(ALL[tool], args)
