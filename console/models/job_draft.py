"""A job while it is edited: its text, its errors, its changes."""

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
    """The job on the job screen, checked after each change."""

    sheet: JobInfo | None = None
    """The server's jobs; None before they are read."""
    text: str = ""
    base: str = ""
    """Text that the fields were filled from: comments survive while no field changes."""
    wrong: UsageError | None = None
    """Why it cannot be sent."""
    notices: tuple[Notice, ...] = ()
    changes: Sequence[Change] = field(default_factory=list)

    def take(self, text: str) -> None:
        """Replace the text."""
        self.text = text
        self.check()

    def fields(self) -> dict[str, str] | None:
        """Return the values for the fields; None when the text is not a job."""
        try:
            fields = values(self.text)
        except UsageError:
            return None
        self.base = self.text
        return fields

    def edit(self, given: Mapping[str, str]) -> None:
        """Put the fields into the text; an invalid field leaves the text as it is."""
        try:
            self.text = with_values(self.base, given)
        except UsageError as error:
            self.wrong = error
            return
        self.check()

    def check(self) -> None:
        """Find errors and warnings, and the differences from the job of the server."""
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
        """Check that an AgentJet server can train the model; `unnamed` is that of a job without."""
        try:
            for_server(self.text, unnamed)
        except ModelError as error:
            todo = "Give a folder or hub name on the server"
            raise FieldError(BY_NAME["model"], error.what, todo) from error

    def first_job(self) -> tuple[str, str]:
        """Return model and masked text of an AgentJet server's job; empty for an embedded one."""
        if self.sheet is None or self.sheet.embedded:
            return "", ""
        text = masked(for_server(self.text, self.sheet.model).text)
        return values(text)["model"], text

    def differs(self, text: str) -> bool:
        """Return whether it differs from `text`, or is invalid."""
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
        """Whether it contains secrets as typed, which the saved job masks."""
        return (
            self.sheet is not None and masked(self.text) != self.text and MASK in self.sheet.saved
        )

    @property
    def wrong_line(self) -> int:
        """The invalid line, from 1; 0 when unknown."""
        place = self.wrong.where.rpartition(":")[2] if self.wrong is not None else ""
        return int(place) if place.isdecimal() else 0

    @property
    def said(self) -> str:
        """The error, in one sentence."""
        wrong = self.wrong
        if wrong is None:
            return ""
        where = "" if wrong.where == "line" else wrong.where.replace("line:", "line ")
        said = ": ".join(text for text in (where, wrong.what) if text)
        return f"{said}. {wrong.todo}" if wrong.todo else said
