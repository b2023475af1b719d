"""A job while it is edited: its text, what is wrong with it, what it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from console.job_fields import FieldError
from console.job_form import Change, Notice, check_job, difference, values, with_values
from core.errors import UsageError
from core.job_sheet import JobSheet


@dataclass(slots=True)
class JobDraft:
    """What is on the job screen; looked at anew after each change."""

    sheet: JobSheet | None = None
    """What is known of the server's jobs; None before it was read."""
    text: str = ""
    base: str = ""
    """What the fields were filled from: comments live as long as no field changes."""
    wrong: UsageError | None = None
    """Why it cannot be sent."""
    notices: tuple[Notice, ...] = ()
    changes: Sequence[Change] = field(default_factory=list)

    def take(self, text: str) -> None:
        """Another text."""
        self.text = text
        self.check()

    def fields(self) -> dict[str, str] | None:
        """What the fields are to show from now on; None when the text is no job."""
        try:
            found = values(self.text)
        except UsageError:
            return None
        self.base = self.text
        return found

    def edit(self, given: Mapping[str, str]) -> None:
        """Put the fields into the text; one that cannot be used leaves it as it is."""
        try:
            self.text = with_values(self.base, given)
        except UsageError as error:
            self.wrong = error
            return
        self.check()

    def check(self) -> None:
        """Find what is wrong and odd, and what differs from the job the server has."""
        self.wrong, self.notices = None, ()
        try:
            self.notices = check_job(self.text, "line").notices
            if self.sheet is not None:
                self.changes = difference(self.sheet.running, self.text, self.sheet.whole)
        except UsageError as error:
            self.wrong = error

    def differs(self, text: str) -> bool:
        """Whether it says anything else than `text`, or something that cannot be used."""
        if isinstance(self.wrong, FieldError):  # its text is as it was, the field is not
            return True
        if self.text == text:
            return False
        try:
            return bool(difference(text, self.text, True))
        except UsageError:
            return True

    @property
    def wrong_line(self) -> int:
        """The line at fault, from 1; 0 when none is known."""
        place = self.wrong.where.rpartition(":")[2] if self.wrong is not None else ""
        return int(place) if place.isdecimal() else 0

    @property
    def said(self) -> str:
        """What is wrong, in one sentence."""
        wrong = self.wrong
        if wrong is None:
            return ""
        where = "" if wrong.where == "line" else wrong.where.replace("line:", "line ")
        said = ": ".join(text for text in (where, wrong.what) if text)
        return f"{said}. {wrong.todo}" if wrong.todo else said
