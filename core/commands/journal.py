"""Commands of the journal."""

from core.commands.spec import Arg, Command

JOURNAL = (
    Command(
        "journal.prune",
        "Journal: Prune",
        "Delete the oldest groups now, in the background; rated, open and the newest ones stay",
        args=(
            Arg("days", "float", "Days to keep; journal.keep_days by default", False),
            Arg("bytes", "int", "Bytes to keep; journal.keep_bytes by default", False),
            Arg("rated", "flag", "Delete older rated groups, too", False),
        ),
        danger=True,
    ),
)
