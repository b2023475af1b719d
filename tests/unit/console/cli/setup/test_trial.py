"""What the setup shows of the group of its request."""

import pytest

from console.cli.setup.trial import Result, no_rewards, shown
from core.events.group import Part
from core.state import Group
from core.state.group import Candidate


def result(**fields: object) -> Result:
    """The group of a request with two answers; the first one has hostile text."""
    parts = (Part("length", 0.5), Part("finished", 1.0, gate=True))
    candidates = [
        Candidate(index=0, text="\x1b[2Jlong " * 40, auto_reward=0.25, parts=parts),
        Candidate(index=1, text="short", auto_reward=None, error="it failed"),
    ]
    group = Group(
        group_id="g1", request_id="r1", server="gpu", task_id="t1", n=2, query="Why?",
        opened_at=0.0, phase="DONE", candidates=candidates, best=0, returned=0,
    )  # fmt: skip
    for name, value in fields.items():
        setattr(group, name, value)
    return Result("Why?", "long", group, "gpu", 0.5, accepted=True)


@pytest.mark.parametrize("width", [60, 100])
def test_each_answer_is_one_line_with_its_reward(width: int) -> None:
    lines = shown(result(), width)
    assert all(len(line) <= width and "\x1b" not in line for line in lines[:4])
    assert lines[2].split()[:3] == ["▶", "1", "0.250"]
    assert lines[3].split() == ["2", "–", "short"]
    text = "\n".join(lines)
    assert "length 0.50, finished 1.00" in text
    assert "the automatic rewards were accepted" in text
    assert no_rewards(result()) is None


def test_a_group_without_rewards_is_an_error_with_its_cause() -> None:
    one = result(abstained="the judge\x07 cannot be used")
    error = no_rewards(one)
    assert error is not None
    assert "the judge␇ cannot be used" in error.what
    assert error.exit_code == 1
