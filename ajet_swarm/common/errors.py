"""Base classes of all errors that are shown to people."""


class AjetError(Exception):
    """An error with a message in three parts.

    Attributes:
        what: What happened, one sentence without a full stop at the end.
        where: File, line, field, URL or command it happened at; may be empty.
        todo: What the reader can do about it; may be empty.
    """

    exit_code = 1
    """Exit code of the command line: 1 for a failure, 2 for wrong use."""

    def __init__(self, what: str, where: str = "", todo: str = "") -> None:
        self.what = what
        self.where = where
        self.todo = todo
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}. {self.todo}" if self.todo else text


class UsageError(AjetError):
    """The command line, a setting or a file the operator wrote is wrong."""

    exit_code = 2
