"""A job while it is edited: its text, what is wrong with it, what it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ajet_swarm.common.errors import UsageError
from ajet_swarm.protocol.job_secrets import MASK, masked
from console.models.job_fields import BY_NAME, FieldError
from console.models.job_form import (
    Change,
    ModelError,
    Notice,
    check_job,
    difference,
    for_server,
    values,
    with_values,
)
from core.control_payloads import JobInfo


@dataclass(slots=True)
class JobDraft:
    """What is on the job screen; looked at anew after each change."""

    sheet: JobInfo | None = None
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
                if not self.sheet.embedded:
                    self._check_model(self.sheet.model)
        except UsageError as error:
            self.wrong = error

    def _check_model(self, unnamed: str) -> None:
        """See that an AgentJet server can train the model; `unnamed` is that of a job without."""
        try:
            for_server(self.text, unnamed)
        except ModelError as error:
            todo = "Give a folder or hub name on the server"
            raise FieldError(BY_NAME["model"], error.what, todo) from error

    def first_job(self) -> tuple[str, str]:
        """Model and masked text of an AgentJet server's job; empty for the embedded engine."""
        if self.sheet is None or self.sheet.embedded:
            return "", ""
        text = masked(for_server(self.text, self.sheet.model).text)
        return values(text)["model"], text

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
    def shows_secrets(self) -> bool:
        """Whether it has secrets as they were typed, that the saved job has masked."""
        return (
            self.sheet is not None and masked(self.text) != self.text and MASK in self.sheet.saved
        )

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
