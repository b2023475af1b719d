"""Commands about the journal."""

from core.commands.spec import Arg, Command

JOURNAL = (
    Command(
        "journal.prune",
        "Journal: Prune",
        "Delete the oldest groups now, in the background; rated, open and the newest ones stay",
        args=(
            Arg("days", "float", "Days that stay; journal.keep_days when left out", False),
            Arg("bytes", "int", "Bytes that stay; journal.keep_bytes when left out", False),
            Arg("rated", "flag", "Rated groups that are older go, too", False),
        ),
        danger=True,
    ),
)
