"""Commands on engine runs."""

from core.commands.spec import Arg, Command

_NUMBER = Arg("number", "int", "Number of the run, as `ajet-console runs` lists it")

RUNS = (
    Command(
        "run.name",
        "Run: Name",
        "Give the run a name",
        args=(_NUMBER, Arg("name", "text", "The name; empty removes it")),
    ),
    Command(
        "run.note",
        "Run: Note",
        "Write a note on the run",
        args=(_NUMBER, Arg("note", "text", "The note; empty removes it")),
    ),
    Command(
        "run.pin",
        "Run: Pin",
        "Keep the requests of the run when the journal is pruned, or no longer",
        args=(_NUMBER, Arg("pinned", "flag", "True pins it (the default), false unpins it", False)),
    ),
)
