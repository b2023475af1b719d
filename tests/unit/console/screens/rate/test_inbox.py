"""The inbox as a list in an order, and the queue over it."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from console.screens.rate.inbox.model import InboxGroups, InboxView
from console.screens.rate.inbox.text import header_line, table, title_line
from console.screens.rate.model import RateQueue
from console.session.filters import parse
from console.text.lines import Line, line_text
from core.state import State, reduce
from tests.support.groups import HOSTILE_TEXTS
from tests.support.ratings import late as late_votes
from tests.support.ratings import missed, queue_of
from tests.support.sample import NOW, state_of

SPLITS = (0.2, 0.9, 0.2, 0.5)


def state() -> State:
    events = []
    for number, _ in enumerate(SPLITS, 1):
        events += missed(number, query=f"question {number}", at=NOW + number, sent=number != 2)
    made = state_of(*events)
    for item, split in zip(made.inbox.values(), SPLITS, strict=True):
        item.opposition = split
    return made


def view_of(made: State, rater: str = "ada") -> InboxView:
    return InboxView(queue_of(made, rater=rater).session)


def numbers(ids: Sequence[str]) -> list[int]:
    return [int(group_id[1:]) for group_id in ids]


@pytest.mark.parametrize(
    ("order", "listed"),
    [("newest", [4, 3, 2, 1]), ("oldest", [1, 2, 3, 4]), ("largest disagreement", [2, 4, 3, 1])],
)
def test_the_orders(order: str, listed: list[int]) -> None:
    view = view_of(state())
    while view.order != order:
        view.turn()
    assert numbers([item.group_id for item in view.items()]) == listed


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("question", [4, 3, 2, 1]),
        ("state:aborted", [2]),
        ("-state:aborted unrated:yes", [4, 3, 1]),
        ("reward>0.95", []),
        ("reward>0.8 answered:4 step:1 server:embedded", [4, 3, 2, 1]),
        ("rated:yes", [3]),
    ],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_the_filter_of_requests(text: str, listed: list[int], in_memory: bool) -> None:
    made = state()
    for event in late_votes(3, 1):
        reduce(made, replace(event, seq=made.seq + 1, at=NOW))
    if not in_memory:
        made.groups.clear()
    view = view_of(made)
    view.filter = parse(text)
    assert numbers([item.group_id for item in view.items()]) == listed


def test_the_queue_goes_on_from_the_group_on_screen_and_reads_two_ahead() -> None:
    made = state()
    whole = dict(made.groups)
    made.groups.clear()
    view = view_of(made)
    late = InboxGroups(view)
    queue = RateQueue(view.session, late)
    queue.next_id = "g0003"
    assert numbers(late.unread("g0003")) == [3, 2, 1]
    assert not queue.advance()  # its texts are not read yet
    for name in ("g0003", "g0002"):
        view.session.read_ahead[name] = whole[name]
    assert queue.advance()
    assert (queue.current, numbers(late.unread(queue.current))) == ("g0003", [1])
    late.gone.add("g0002")
    view.session.read_ahead["g0001"] = whole["g0001"]
    assert numbers([group.group_id for group in queue.waiting()]) == [3, 1]
    for event in late_votes(3, 1):
        reduce(made, replace(event, seq=made.seq + 1, at=NOW))
    assert queue.advance()
    assert (queue.current, queue.ballot is not None) == ("g0001", True)


def test_a_vote_of_this_rater_ends_the_wait_and_one_of_another_does_not() -> None:
    made = state_of(*missed(1, overlap=2), *late_votes(1, 0, overlap=2))
    (item,) = made.inbox.values()
    assert view_of(made, "bob").needs_vote(item)
    assert not view_of(made, "ada").needs_vote(item)
    assert "1/2" in line_text(_row(view_of(made, "bob")))


def _row(view: InboxView) -> Line:
    return table(view).row(view.items()[0], 80)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 160])
def test_the_line_says_that_a_vote_is_not_sent(width: int) -> None:
    made = state()
    for group in made.groups.values():
        text = line_text(header_line(view_of(made), group, width))
        assert len(text) <= width
        assert "Late vote" in text
        assert width < 60 or "never sent" in text


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_questions_leave_the_list_as_it_is(text: str) -> None:
    made = state_of(*missed(1, query=text))
    view = view_of(made)
    for line in (_row(view), title_line(view, 60)):
        assert "\x1b" not in line_text(line)
        assert "\n" not in line_text(line)
