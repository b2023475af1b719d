"""What the key areas of the rating screen share: the queue, messages, the group on screen."""

from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType

from ajet_swarm.common.text import plain
from console.screens.base import ConsoleScreen
from console.screens.group.actions import DetailKeys, GroupKeys, GroupTarget
from console.screens.rate.model import RateQueue, digit
from console.screens.rate.widgets import Answers
from console.widgets.key_area import KeyArea
from core.state import Group

NO_GROUP = "No group is waiting for a vote"
_REPLACED = frozenset({"unrate", "rerun"})
"""Actions on one group whose keys do something else here."""
_HIDDEN = frozenset({"accept", "abort"})


def show_hint(area: KeyArea, queue: RateQueue, message: str) -> None:
    """Show a message about the group on screen, until that changes or the next vote."""
    queue.set_message(plain(message), hint=True)
    area.changed()


def _explain(area: KeyArea, queue: RateQueue, why: str) -> None:
    """Show why a key does nothing now; in the last line while no group waits."""
    if queue.group is not None:
        area.host.say(why, "warning")
    else:
        show_hint(area, queue, why)


class RateArea(KeyArea):
    """A key area of the rating screen."""

    def __init__(self, queue: RateQueue, *, focusable: bool = False) -> None:
        super().__init__(focusable=focusable)
        self.queue = queue

    @property
    def answers(self) -> Answers:
        """The widget with the answers."""
        return self.screen.query_one(Answers)

    def explain(self, key: str, why: str) -> None:
        _explain(self, self.queue, why)


class RatedGroup(GroupTarget):
    """The group on the rating screen, whose answers are shuffled and may be anonymous."""

    def __init__(self, screen: ConsoleScreen, queue: RateQueue) -> None:
        super().__init__(screen)
        self._queue = queue

    @property
    def candidate(self) -> int:
        answers = self._screen.query_one(Answers)
        return answers.cards[answers.selected or 0].index if answers.cards else 0

    def number_of(self, index: int) -> str:
        """Return the digit of the answer on this screen, not the number of the candidate."""
        ballot = self._queue.ballot
        return digit(index, ballot.shown) if ballot is not None else super().number_of(index)

    def abort_details(self, group: Group) -> str:
        """Return what the user received; omit the answer's number while the vote is blind."""
        ballot = self._queue.ballot
        if group.returned is None or ballot is None:
            return super().abort_details(group)
        if not ballot.revealed:
            return "The user has been answered."
        return f"The user has been answered, with answer {self.number_of(group.returned)}."


class RateGroupKeys(DetailKeys, inherit_bindings=False):
    """The keys for the group on the rating screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        replace(binding, show=binding.show and binding.action not in _HIDDEN)
        for binding in Binding.make_bindings([*GroupKeys.BINDINGS, *DetailKeys.BINDINGS])
        if binding.action not in _REPLACED
    ]

    def __init__(self, target: GroupTarget, queue: RateQueue) -> None:
        super().__init__(target)
        self._queue = queue

    def obstacle(self, action: str) -> str | None:
        if action in _HIDDEN and self._queue.group is None:
            return NO_GROUP
        return "" if action in _HIDDEN and self._queue.second else super().obstacle(action)

    def explain(self, key: str, why: str) -> None:
        _explain(self, self._queue, why)
