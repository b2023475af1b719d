"""Jobs of one server as the proxy knows them; asked for, never kept in the journal."""

import msgspec


class JobSheet(msgspec.Struct, frozen=True, kw_only=True):
    """What is saved for a server, what it runs, and what the presets are. Jobs are YAML text."""

    server: str
    saved: str = ""
    """Saved here for the next start; empty when nothing is."""
    saved_at: float = 0.0
    running: str = ""
    """What the server has, as far as it is known; empty when nothing is."""
    source: str = ""
    """Where that is known from, in words."""
    told: tuple[str, ...] = ()
    """Keys of it that the server told itself."""
    differs: tuple[str, ...] = ()
    """Of these, those in which it is not the job that was sent from here last."""
    whole: bool = False
    """It is a whole job, as sent; else only what the server told."""
    default: str = ""
    hand: str = ""
    """The presets."""
    embedded: bool = True
    """The server is the embedded engine: it starts with any job, and needs no question before."""
    last: bool = False
    """The next start runs the job the server has: another client started it last."""
    model: str = ""
    """Model of a job that names none, on an AgentJet server; empty when none is known."""
    path: str = ""
    """File in the home of the proxy that holds the saved job."""
