"""Commands of an engine: its job, its start, probes of its policy."""

from core.commands.spec import Arg, Command

PRESETS = ("default", "hand", "last")
"""Jobs shipped with the program, and the one last sent from here to the server."""

_SERVER = Arg("server", "text", "Name of the swarm server; the first one by default", False)

_MODEL = Arg("model", "text", "Model for a job without one, on an AgentJet server", False)

_PRESET = Arg(
    "preset", "text", "A job shipped with the program, or `last`, the one last sent", False, PRESETS
)

START = Command(
    "engine.start",
    "Engine: Start",
    "Send the job and start the engine; it must be OFFLINE",
    args=(
        _SERVER,
        Arg(
            "preset",
            "text",
            "A job shipped with the program, or `last`, the one last sent; by default the saved "
            "one, else on an AgentJet server the one last sent, else `default`",
            False,
            PRESETS,
        ),
        Arg("job", "text", "The job as YAML; it is also saved for the server", False),
        _MODEL,
    ),
)

JOBS = (
    Command(
        "engine.job",
        "Engine: Save the job",
        "Check a job and save it for the server's next start",
        args=(_SERVER, Arg("job", "text", "The job as YAML", False), _PRESET),
    ),
    Command(
        "engine.apply",
        "Engine: Apply the job",
        "Stop, wait for a stable OFFLINE, send the job and start; all claimed episodes are lost",
        args=(
            _SERVER,
            Arg("job", "text", "The job as YAML, also saved; the saved one by default", False),
            _PRESET,
            _MODEL,
        ),
        danger=True,
    ),
    Command(
        "engine.cancel",
        "Engine: Cancel the operation",
        "End a start or an apply at its next safe point; reports the engine's state",
        args=(_SERVER,),
    ),
    Command(
        "engine.abort_episode",
        "Engine: Abort an episode",
        "Take a claimed episode from the client that holds it; in ROLLING it goes back to the pool",
        args=(
            Arg("episode", "text", "Its uuid, or the beginning of it"),
            _SERVER,
            Arg("reason", "text", "Reason", False),
        ),
        danger=True,
    ),
)

TRY = (
    Command(
        "engine.try",
        "Engine: Try a prompt",
        "Send one prompt to the policy as an eval episode, which is not trained on",
        args=(
            Arg("prompt", "text", "The prompt"),
            _SERVER,
            Arg("try_id", "text", "Name of the try; a new one by default", False),
        ),
    ),
    Command(
        "engine.try_stop",
        "Engine: Cancel a try",
        "Give the episode of a try back; it ends without an answer",
        args=(Arg("try_id", "text", "Name of the try; the newest running one by default", False),),
    ),
)
