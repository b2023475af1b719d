"""Tools for agents: tokens of destructive commands, schemas, the verb."""

import re

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from ajet_swarm.common.errors import UsageError
from console.cli import main
from console.mcp.confirmation import CONFIRMED_ARGUMENTS, VALID_SECONDS, Confirmations
from console.mcp.schema import NEEDS_CONTENT, READING, check_names, tool_name, tools
from console.mcp.tools import Tools
from core.commands import COMMANDS
from core.commands.plan import Plan
from core.runtime.home import Home
from tests.support.commands.cli import Cli

PLAN = Plan("group.abort", {"group_id": "g1"}, "would abort", targets=("AWAITING_RATING",))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("token", ["", "x", None, 5, ["a"], {}])
def test_what_is_no_token_is_refused(token: object) -> None:
    made = Confirmations()
    made.issue(PLAN)
    with pytest.raises(UsageError, match="unknown"):
        made.redeem(token, PLAN)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(PLAN, command="engine.stop"), "another command"),
        (replace(PLAN, args={"group_id": "g2"}), "other arguments"),
        (replace(PLAN, args={"group_id": "g1", "reason": "x"}), "other arguments"),
        (replace(PLAN, targets=("DONE",)), "state has changed"),
    ],
)
def test_a_token_of_another_plan_is_refused_and_used_up(other: Plan, why: str) -> None:
    made = Confirmations()
    token = made.issue(PLAN)
    with pytest.raises(UsageError, match=why):
        made.redeem(token, other)
    with pytest.raises(UsageError, match="used already"):
        made.redeem(token, PLAN)


def test_a_token_expires() -> None:
    clock = Clock()
    made = Confirmations(clock)
    token = made.issue(PLAN)
    clock.now = VALID_SECONDS
    with pytest.raises(UsageError, match="expired"):
        made.redeem(token, PLAN)


def test_the_oldest_of_many_tokens_is_dropped() -> None:
    made = Confirmations()
    first, *_, last = [made.issue(PLAN) for _ in range(100)]
    with pytest.raises(UsageError, match="unknown"):
        made.redeem(first, PLAN)
    made.redeem(last, PLAN)


ALL = tools("act", content=True, local=True)


def test_the_read_role_has_no_tool_that_sends_a_command() -> None:
    offered = tools("read", content=True, local=True)
    assert set(offered) == {one.name for one in READING}
    assert all(one.command is None for one in offered.values())


def test_each_command_is_one_tool_with_a_valid_name() -> None:
    assert set(ALL) == {one.name for one in READING} | {tool_name(command) for command in COMMANDS}
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
    hidden = {
        *NEEDS_CONTENT,
        *(command.name for command in COMMANDS.values() if command.where == "console"),
    }
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


def test_without_the_sdk_the_message_names_the_extra(
    cli: Cli, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.cli.system.mcp.find_spec", lambda _: None)
    printed = cli.run("run", "mcp", code=2)
    assert "pip install 'ajet-console[mcp]'" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("words", "acts"),
    [
        (["run", "mcp", "--role", "act"], True),
        (["--read-only", "run", "mcp", "--role", "act"], False),
        (["run", "mcp", "--role", "act", "--read-only"], False),
    ],
)
def test_with_read_only_no_tool_acts(
    words: list[str], acts: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: set[str] = set()

    async def serve(tools: Tools) -> None:
        names.update(one.name for one in await tools.offered())

    monkeypatch.setattr("console.mcp.server.serve", serve)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # `mcp` ends the process on Ctrl+C
    assert main(words) == 0
    assert "status" in names
    assert ("engine_stop" in names) == acts
