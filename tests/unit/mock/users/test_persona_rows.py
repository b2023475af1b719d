"""Rows with a persona, and what passes between them and the model that plays them."""

from typing import Any

import msgspec
import pytest

from ajet_swarm.common.errors import UsageError
from ajet_swarm.data.records import RowError
from ajet_swarm.protocol.errors import DatasetError
from core.runtime.secrets import env_key
from mock.dataset import Columns, Row
from mock.dataset.rows import Turn, side_of
from mock.users.persona import STOP, ConversationEnd, parse_message, prompt
from tests.unit.mock.helpers import parse

KEY = "user-secret-1234567890"
ROW = {"id": "p1", "persona": "A hasty baker.", "goal": "Learn to proof dough.", "opening": "Hey!"}


def _parse(**row: Any) -> Row:
    return parse(3, msgspec.json.encode(row))


def test_rows() -> None:
    row = _parse(**ROW)
    assert (row.persona, row.goal, row.query) == (ROW["persona"], ROW["goal"], "Hey!")
    assert _parse(persona="x", query="q", opening="o").query == "q"
    assert _parse(query="q", goal="g").goal == ""
    assert _parse(query="q", persona={"name": "x"}).persona == ""
    greeted = _parse(persona="x", messages=[{"role": "assistant", "content": "Can I help?"}])
    assert greeted.messages[-1]["content"] == "Can I help?"
    assert greeted.reference is None
    with pytest.raises(RowError, match="exclude"):
        _parse(persona="x", turns=["a"])
    with pytest.raises(RowError, match="no query"):
        _parse(opening="no persona")
    sides = {side_of(_parse(persona="x", goal=f"{n}"), 0.5) for n in range(50)}
    assert sides == {"train", "held-out"}


def test_columns() -> None:
    Columns().check(dict.fromkeys(["persona", "goal"]), "")
    Columns({"persona": "who"}).check({"who": "a cook"}, "")
    with pytest.raises(DatasetError):
        Columns().check({"goal": ""}, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Hi there \n", Turn(query="Hi there")),
        ("Bye! [END]", ConversationEnd(how="goal")),
        ("<think>[END]?</think>\nNo, more.", Turn(query="No, more.")),
        ("Am I done? [END]?\n</think>\n\nNo, more.", Turn(query="No, more.")),
        ("[end]", Turn(query="[end]")),
    ],
)
def test_messages_of_the_user_model_are_parsed(text: str, expected: Turn | ConversationEnd) -> None:
    assert parse_message(text, STOP) == expected


def test_the_prompt_exchanges_the_roles() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "Hello, I am"},
        {"role": "assistant", "content": "a bot"},
        {"role": "user", "content": [{"type": "text", "text": "hm"}]},
        {"role": "tool", "content": "data"},
    ]
    result = prompt(_parse(**ROW), messages, STOP, 5)
    assert [one["role"] for one in result] == ["user", "assistant", "user"]
    assert result[0]["content"].endswith("Hello, I am\n\na bot")
    assert "data" not in repr(result)


def test_keys_come_from_the_environment_and_are_not_repeated() -> None:
    assert env_key("K", "the key", {"K": f" {KEY} "}) == KEY
    for name, held in (("K", ""), ("K", "sk-xxx"), ("K", "a b"), (f"{KEY}!", "x"), ("", "x")):
        with pytest.raises(UsageError) as caught:
            env_key(name, "the key", {name: held})
        assert KEY not in str(caught.value)
        assert "a b" not in str(caught.value)
