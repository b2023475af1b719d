"""The registry of commands: names, titles, and arguments that are checked."""

import pytest

from core.commands import COMMANDS, CommandError, validate
from core.events.base import GroupEvent
from core.events.rating import VoteEvent


def test_commands_are_checked() -> None:
    assert validate("group.rate", {"group_id": "g", "rating": "best", "order": "2"}) == {
        "group_id": "g",
        "rating": "best",
        "order": (2,),
    }
    for name, args, value in (
        ("group.rat", {}, "no command"),
        ("group.rate", {"group_id": "g"}, "needs `rating`"),
        ("group.rate", {"group_id": "g", "rating": "good"}, "Valid: best"),
        ("group.rate", {"group_id": "g", "rating": "scores", "scores": ["nan"]}, "cannot be"),
        ("group.abort", {"group_id": "g", "why": "x"}, "takes no `why`"),
        ("group.mark", {"group_id": "g", "marked": "perhaps"}, "cannot be"),
    ):
        with pytest.raises(CommandError, match=value):
            validate(name, args)


def test_command_names_and_titles_follow_one_form() -> None:
    for name, command in COMMANDS.items():
        assert name == command.name
        assert name.count(".") == 1
        assert ": " in command.title
        assert command.help


def test_all_commands_with_a_vote_take_the_same_record() -> None:
    vote = set(VoteEvent.__struct_fields__) - set(GroupEvent.__struct_fields__) - {"rewards"}
    for name in ("group.rate", "group.settle", "group.repeat"):
        args = {arg.name for arg in COMMANDS[name].args}
        assert args - {"group_id", "holder", "override"} == vote, name
