"""Commands about an engine: its job, its start, probes of its policy."""

from core.commands.spec import Arg, Command

PRESETS = ("default", "hand")

_SERVER = Arg("server", "text", "Name of the swarm server; the first one when left out", False)

_MODEL = Arg("model", "text", "Model of a job that names none, on an AgentJet server", False)

_PRESET = Arg("preset", "text", "A job that comes with the program", False, PRESETS)

START = Command(
    "engine.start",
    "Engine: Start",
    "Send the job and start the engine; it must be OFFLINE",
    args=(
        _SERVER,
        Arg("preset", "text", "Which job; else the saved one, else the default", False, PRESETS),
        Arg("job", "text", "The job as YAML; it is saved for the server, too", False),
        _MODEL,
    ),
)

JOBS = (
    Command(
        "engine.job",
        "Engine: Save the job",
        "Check a job and save it for the server: the next start takes it",
        args=(_SERVER, Arg("job", "text", "The job as YAML", False), _PRESET),
    ),
    Command(
        "engine.apply",
        "Engine: Apply the job",
        "Stop, wait for a stable OFFLINE, send the job and start; what is claimed is lost, for all",
        args=(
            _SERVER,
            Arg("job", "text", "The job as YAML, saved too; else the saved one", False),
            _PRESET,
            _MODEL,
        ),
        danger=True,
    ),
    Command(
        "engine.cancel",
        "Engine: Cancel what is being done",
        "End a start or an apply at its next safe place; says what the engine is left in",
        args=(_SERVER,),
    ),
    Command(
        "engine.abort_episode",
        "Engine: Abort an episode",
        "Take a claimed episode from the client that holds it; in ROLLING it goes back to the pool",
        args=(
            Arg("episode", "text", "Its uuid, or how it begins"),
            _SERVER,
            Arg("reason", "text", "Why", False),
        ),
        danger=True,
    ),
)

TRY = (
    Command(
        "engine.try",
        "Engine: Try a prompt",
        "Ask the policy once, as an eval episode: nothing is trained on it, the answer is kept",
        args=(
            Arg("prompt", "text", "What to ask"),
            Arg("server", "text", "Name of the swarm server; the first one when left out", False),
            Arg("try_id", "text", "How to call the try; a new name when left out", False),
        ),
    ),
    Command(
        "engine.try_stop",
        "Engine: Cancel a try",
        "Give the episode of a try back; it ends without an answer",
        args=(Arg("try_id", "text", "Which one; the newest that runs when left out", False),),
    ),
)
