"""The groups that can be exported, and the causes for which others are not."""

from collections.abc import Callable

from console.export.records import ExportedGroup
from console.session.filters import Filter
from core.journal.reader import JournalSurvey
from proxy.dialects.images import has_images
from proxy.held_out import HeldOutPrompts

OPEN = "not closed, or not readable"
LOST = "texts that are missing in the journal"
FILTERED = "outside the filter"


class Selection:
    """Chooses groups.

    Args:
        survey: Facts of the journal, with its held-out prompts.
        where: Filter of the console's request list.
    """

    def __init__(self, survey: JournalSurvey, where: Filter) -> None:
        self._where = where
        self._held_out = HeldOutPrompts()
        self._held_out.replace("", survey.probes)

    def obstacle(self, record: ExportedGroup) -> str | None:
        """Return why a group is not exported; None if it is."""
        if not self._where.matches(record.group):
            return FILTERED
        for cause, applies in _CAUSES.items():
            if applies(record):
                return cause
        if self._held_out.matches(record.opened.query, record.prompt):
            return "held-out prompt of a probe set"
        return None


_CAUSES: dict[str, Callable[[ExportedGroup], bool]] = {
    "aborted or failed": lambda record: record.group.phase != "DONE" and not record.late,
    "helper call of the application": lambda record: bool(record.opened.helper),
    "evaluation, not for training": lambda record: record.opened.episode_type == "eval",
    "prompt that the server cut": lambda record: record.group.prompt_cut,
    "images, which the journal does not keep": lambda record: has_images(record.prompt),
    "no answer": lambda record: not record.candidates,
}
