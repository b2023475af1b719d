"""The operator's orders on groups: rate, undo, accept, abort, mark, note, switch the mode."""

from collections.abc import Callable, Iterable

from core.errors import AjetError
from core.events import GroupMarked, GroupNoted, RatingModeChanged
from proxy.errors import NotNow, busy
from proxy.rating import accept, rate, unrate
from proxy.run import Run, Stop
from proxy.seat import Seat

MODES = ("off", "answer_first", "hold")


class GroupCommands:
    """What can be ordered. Ids may be cut to their first characters.

    All of them return a short message for people, and raise an `AjetError` that says why when the
    order cannot be carried out: nothing has changed then.

    Args:
        seat: The proxy's shared parts.
        stop: Ends a run before its time; False when it is too late.
    """

    def __init__(self, seat: Seat, stop: Callable[[Run, Stop], bool]) -> None:
        self.seat = seat
        self._runs: dict[str, Run] = {}
        """Groups that live, by id."""
        self._stopper = stop

    def find(self, group_id: str, ids: Iterable[str]) -> str:
        """The whole id of a group among `ids`, from its first characters.

        Raises:
            NotNow: none, or several, begin so.
        """
        known = list(ids)
        found = [one for one in known if one == group_id] or [
            one for one in known if group_id and one.startswith(group_id)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotNow(f"{len(found)} groups begin with {group_id}", todo="Give more of the id")
        raise NotNow(f"there is no group {group_id}", todo="The newest 500 groups can be named")

    def _live_run(self, group_id: str, what: str) -> Run:
        whole = self.find(group_id, {**self.seat.bus.state.groups, **self._runs})
        run = self._runs.get(whole)
        if run is None or run.closing:
            raise NotNow(f"group {whole} is over: it cannot be {what}")
        if run.sealed:
            raise NotNow(f"group {whole} is already sealed: it cannot be {what}")
        return run

    async def rate(
        self,
        group_id: str,
        rating: str,
        order: tuple[int, ...] = (),
        scores: tuple[float, ...] = (),
        rater: str = "",
        note: str = "",
    ) -> str:
        """Rate the candidates; replaces the automatic reward when the group is sealed."""
        run = self._live_run(group_id, "rated")
        rate(run, rating, tuple(order), tuple(scores), rater=rater, note=note)
        return f"group {run.group_id} is rated: {rating}"

    async def unrate(self, group_id: str, rater: str = "") -> str:
        """Take a rating back, as long as it is not sealed."""
        run = self._live_run(group_id, "changed")
        unrate(run, rater)
        return f"the rating of group {run.group_id} is taken back"

    async def accept(self, group_id: str) -> str:
        """Seal now: with the rating if there is one, else with the automatic reward."""
        run = self._live_run(group_id, "accepted")
        accept(run)
        what = "the rating" if run.rating is not None else "the automatic reward"
        return f"group {run.group_id} is sealed with {what}"

    async def abort(self, group_id: str, reason: str = "") -> str:
        """Give all episodes of a group back; its user gets what answer there is."""
        run = self._live_run(group_id, "aborted")
        cause = f"aborted by the operator{': ' + reason if reason else ''}"
        if not self._stopper(run, Stop(cause, "ABORTED", busy(2))):
            raise NotNow(f"group {run.group_id} is ending already")
        return f"group {run.group_id} is aborted"

    async def mark(self, group_id: str, marked: bool | None = None) -> str:
        """Set, clear or (None) toggle the mark of a group, also of one that is over."""
        groups = self.seat.bus.state.groups
        group = groups[self.find(group_id, groups)]
        wanted = not group.marked if marked is None else marked
        self.seat.bus.publish(
            GroupMarked(server=group.server, group_id=group.group_id, marked=wanted)
        )
        return f"group {group.group_id} is {'marked' if wanted else 'no longer marked'}"

    async def note(self, group_id: str, note: str) -> str:
        """Write a note on a group, also on one that is over; an empty one clears it."""
        groups = self.seat.bus.state.groups
        group = groups[self.find(group_id, groups)]
        self.seat.bus.publish(GroupNoted(server=group.server, group_id=group.group_id, note=note))
        return f"the note of group {group.group_id} is {'written' if note else 'cleared'}"

    async def set_mode(self, mode: str) -> str:
        """Switch how people rate; it holds for open groups too."""
        if mode not in MODES:
            raise AjetError(f"there is no rating mode {mode}", todo=f"Known: {', '.join(MODES)}")
        self.seat.bus.publish(RatingModeChanged(mode=mode))
        return f"the rating mode is {mode}"
