"""The root of every error that a person may read."""


class AjetError(Exception):
    """Something went wrong, said in three parts.

    Attributes:
        what: What happened, one sentence without a full stop at the end.
        where: File, line, field, URL or command it happened at; may be empty.
        todo: What the reader can do about it; may be empty.
    """

    exit_code = 1
    """What a command line ends with: 1 failed, 2 wrong use."""

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
