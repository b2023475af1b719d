"""The verbs of the command line, in the sections of `--help`, with the module of each.

A verb's module is imported when the verb is parsed: its function has the options beside it, see
`console.cli.options`. Verbs of `core.commands` without a function of their own take their arguments
from there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.commands import COMMANDS


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb.

    Attributes:
        name: The last word of its name: `list` of `runs list`.
        target: `module:function` below `console.cli`.
        about: One sentence without a full stop.
        example: Arguments of the example in its help.
        command: The command of `core.commands` that it sends; empty when it sends none.
        reads: Whether it changes nothing: it is allowed with `--read-only`.
        dry_run: Whether it has `--dry-run`.
        json: Whether it has `--json`; not if it runs until it is ended, or prints a file for a
            program.
    """

    name: str
    target: str
    about: str
    example: str = ""
    command: str = ""
    reads: bool = False
    dry_run: bool = True
    json: bool = True


@dataclass(frozen=True, slots=True)
class Area:
    """A group of verbs.

    Attributes:
        name: Its word: `runs`.
        about: One sentence without a full stop.
        verbs: The verbs.
        default: The verb that runs when none is named; empty when one must be.
    """

    name: str
    about: str
    verbs: Sequence[Verb]
    default: str = ""


def reads(name: str, target: str, about: str, example: str = "", *, json: bool = True) -> Verb:
    """Return a verb that changes nothing."""
    return Verb(name, target, about, example, reads=True, dry_run=False, json=json)


def sends(name: str, command: str, example: str = "", target: str = "commands:send_plain") -> Verb:
    """Return a verb that sends a command of the registry."""
    return Verb(name, target, COMMANDS[command].help, example, command)


SECTIONS: Mapping[str, Sequence[Verb | Area]] = {
    "processes": (
        Verb("setup", "setup.command:setup",
            "Ask for application, dataset, rewards, engine and rating; write config.yaml; send one "
            "request", "rating=hold"),
        Area("run",
            "Run a process: the embedded engine, the fake vLLM, the mock user, a server for "
            "browsers or agents, one episode", (
            Verb("engine", "processes:engine",
                "Run the embedded engine: a swarm server that trains a small policy on this "
                "machine's CPU, or a model of your choice on its GPU", "--port 10086", json=False),
            Verb("proxy", "processes:proxy", "Run the fake vLLM without a console",
                "--swarm-url http://gpu-box:10086 --port 8000", json=False),
            Verb("mock", "mock:mock", "Replay a dataset through the application, as a user would",
                "questions.jsonl --concurrency 3 --passes 2 --seed 7", "mock.start"),
            Verb("web", "system.web:web",
                "Serve the console to browsers, by links that expire, for raters and viewers",
                "--link rater --name anna --expires 8h", dry_run=False),
            reads("mcp", "system.mcp:mcp",
                "Serve agents by MCP: tools that read the state, and with --role act send commands",
                "--role act", json=False),
            reads("service", "system.shell:service",
                "Print a systemd user unit that runs the proxy or the embedded engine",
                "proxy --swarm-url http://gpu-box:10086 --port 8000", json=False),
            Verb("episode", "episode:debug",
                "Run one episode of a folder and print its trace: calls, tokens, reward, traceback",
                "my_agent --item 3 --watch"),
        )),
        Area("proxy", "Drain or restart the fake vLLM", (
            sends("drain", "proxy.drain"),
            sends("restart", "proxy.restart", "--yes", "processes:restart"),
        )),
        Area("mock", "Start, pause, resume or stop the mock user", (
            Verb("start", "mock:mock", "Replay a dataset through the application, as a user would",
                "questions.jsonl --concurrency 3 --passes 2 --seed 7", "mock.start"),
            sends("pause", "mock.pause"),
            sends("resume", "mock.resume"),
            sends("stop", "mock.stop"),
        )),
    ),
    "what happens": (
        reads("status", "status:status",
            "Show the proxy, the engines, the mock user and the groups that wait for a rating",
            "--json"),
        reads("watch", "watch:watch", "Follow the events, one line each",
            "--json --filter dead:yes"),
        reads("doctor", "doctor:doctor",
            "Check Python, terminal, ports, home, servers, keys and hooks, and suggest fixes",
            "--swarm-url http://gpu-box:10086"),
        Area("alerts", "List or dismiss alerts", (
            reads("list", "status:alerts", "List the alerts"),
            sends("dismiss", "alert.dismiss", "lost:gpu", "status:dismiss"),
        ), "list"),
        Area("progress",
            "Say whether the policy is better than its baseline; measure, rewind, pause training, "
            "compare answers", (
            reads("show", "progress:progress",
                "Say whether the policy is better than its baseline, on held-out prompts; exit "
                "code 0 better, 3 not known, 4 worse", "--json"),
            sends("look", "progress.look", "--server gpu", "engine.control:plain_order"),
            sends("trust", "progress.trust", "--server gpu", "engine.control:plain_order"),
            sends("rewind", "progress.rewind", "--yes", "engine.control:rewind"),
            sends("pause", "progress.pause", "--all", "engine.control:plain_order"),
            sends("resume", "progress.resume", "--all", "engine.control:plain_order"),
            sends("pair", "progress.pair", "--json", "groups:pair"),
            sends("vote", "progress.vote", "5d1c0e9a7b42 left", "groups:vote_pair"),
            Verb("probe-set", "mock:probe_set",
                "Write a probe set from the held-out rows of a dataset",
                "questions.jsonl --out probe.jsonl"),
        ), "show"),
        Area("runs",
            "List the engine runs with job, rewards and verdict; show or compare them; name, note "
            "or pin one", (
            reads("list", "reports:runs", "List all runs, newest first"),
            reads("show", "reports:run", "Show job, steps, rewards, verdict, curve", "12"),
            reads("compare", "reports:compared",
                "Compare two runs: curves over each other, what differs in job and rewards",
                "12 11"),
            sends("name", "run.name", "12 'lower lr'"),
            sends("note", "run.note", "12 'lower lr'"),
            sends("pin", "run.pin", "12", "reports:pin"),
        ), "list"),
        Area("journal",
            "Show the journal's size, delete its oldest groups, or check it for damage", (
            reads("stats", "journal:stats",
                "Show events, groups, bytes and where the history starts"),
            Verb("prune", "journal:prune",
                "Show which of the oldest groups would be deleted, ask, and delete them; open "
                "groups stay, rated ones are deleted last", "--days 30", "journal.prune"),
            reads("check", "journal:check",
                "Read every page, event and message; exit code 1 when something is damaged"),
            reads("replay", "replay:replay",
                "Show a journal on the console's screens, without engine and proxy; nothing is "
                "written", "journal.db --speed 10"),
        ), "stats"),
    ),
    "answers and ratings": (
        sends("rate", "group.rate", "3f2a 3", "groups:rate"),
        sends("accept", "group.accept", "--where 'state:awaiting reward>0.8'", "groups:accept"),
        sends("abort", "group.abort", "--where 'state:awaiting reward<0.2' --yes", "groups:abort"),
        Verb("export", "export:export",
            "Write ranked groups to a file: preference pairs, SFT, KTO, rankings, VERL, JSONL",
            "preference pairs.jsonl --where 'rated:yes' --split 0.9/0.1", reads=True),
        Area("group", "Change single groups of answers: votes, marks, notes, corrections", (
            sends("unrate", "group.unrate", "3f2a", "groups:unrate"),
            sends("settle", "group.settle", "3f2a 3", "groups:vote_later"),
            sends("repeat", "group.repeat", "3f2a 3", "groups:vote_later"),
            sends("lease", "group.lease", "3f2a --seconds 60", "groups:lease"),
            sends("edit", "group.edit", "3f2a 1 --file better.txt", "groups:edit"),
            sends("rescore", "group.rescore", "--where state:awaiting", "groups:bare"),
            sends("refill", "group.refill", "--where state:awaiting", "groups:bare"),
            sends("rerun", "group.rerun", "3f2a 41cc", "groups:bare"),
            sends("pin", "group.pin", "3f2a", "groups:bare"),
            sends("mark", "group.mark", "--where 'dead:yes text~paris'", "groups:mark"),
            sends("note", "group.note", "3f2a --text 'asks for two things'", "groups:note"),
        )),
        Area("rating",
            "Choose the mode of rating, show the raters, finish or abort all waiting groups", (
            sends("mode", "rating.mode", "hold"),
            reads("raters", "reports:raters",
                "Show who rates, the pace and agreement of each rater, and the disagreements to "
                "settle", "--json"),
            sends("accept-all", "rating.accept_all", "--server gpu", "groups:accept_all"),
            sends("abort-all", "rating.abort_all", "--server gpu", "groups:abort_all"),
        )),
        Area("rewards", "Show, test and change the rewards", (
            reads("show", "reports:rewards",
                "Show the reward model: its parts over the last groups, and its last fault",
                "--last 500"),
            Verb("test", "rewards.test:reward_test",
                "Score stored groups again and show what would change; nothing is sent",
                "--last 200 --rewards new.yaml", dry_run=False),
            sends("weight", "rewards.weight", "length 0.5"),
            sends("gate", "rewards.gate", "refusal off"),
            sends("enable", "rewards.enable", "relevance off"),
            sends("whatif", "rewards.whatif", "length=0.1 diversity=0.6 --last 200"),
            sends("whatif-stop", "rewards.whatif_stop"),
            sends("apply", "rewards.apply", "length=0.1 diversity=0.6"),
        ), "show"),
    ),
    "swarm servers": (
        Area("engine", "Start, stop and change the engines of the swarm servers; try a prompt", (
            sends("start", "engine.start", "--preset hand", "engine.jobs:start"),
            sends("stop", "engine.stop", "--all --yes", "engine.control:stop"),
            sends("job", "engine.job", "--set lr=1e-4 --set batch=8", "engine.jobs:job"),
            sends("apply", "engine.apply", "--all --set lr=1e-4 --yes", "engine.jobs:apply"),
            sends("cancel", "engine.cancel", "--server gpu", "engine.control:plain_order"),
            sends("resume", "engine.resume", "--all", "engine.control:plain_order"),
            sends("reset", "engine.reset", "--server gpu --yes", "engine.control:reset"),
            sends("abort-episode", "engine.abort_episode", "3f5bc3c9 --yes",
                "engine.control:abort_episode"),
            sends("restart", "engine.restart_process", "--yes", "processes:restart"),
            sends("try", "engine.try", "'Why is the sky blue?'", "engine.control:try_prompt"),
            sends("try-stop", "engine.try_stop", "", "engine.control:try_stop"),
            reads("tokens", "engine.checkpoints:tokens",
                "Show each token of an episode: id, text, loss mask, log-probs when sampled and "
                "now", "3f5bc3c9-0f1e-4a52-9d6e-2c8f4d1f9a10"),
        )),
        Area("checkpoints",
            "List, save, restore, prune, export or import checkpoints of the embedded engine", (
            reads("list", "engine.checkpoints:listed", "List all checkpoints, newest first"),
            Verb("save", "engine.checkpoints:save", "Save the current policy under a name",
                "before-lunch", "engine.save"),
            Verb("restore", "engine.checkpoints:restore",
                "Restore a checkpoint, or `base`; the engine must be OFFLINE", "before-lunch --yes",
                "engine.restore"),
            Verb("prune", "engine.checkpoints:prune", "Delete all named checkpoints but the newest",
                "3 --yes", "engine.prune"),
            Verb("export", "engine.checkpoints:export",
                "Write a checkpoint as a safetensors file, of the torch backend as a folder",
                "best best.safetensors --half", reads=True),
            Verb("import", "engine.checkpoints:imported",
                "Import a safetensors file and continue from it; the engine must be OFFLINE",
                "theirs theirs.safetensors"),
        ), "list"),
    ),
    "applications and access": (
        reads("clients", "clients:clients",
            "Print the settings with which a client uses the fake vLLM", "codex"),
        Area("init",
            "Write a folder: to train an agent or application, or for scripts of AgentJet", (
            Verb("blackbox", "folders:init",
                "Write a folder that trains your program on a dataset",
                "my_agent --dataset sums.jsonl --repeats 4"),
            Verb("passive", "folders:init",
                "Write a folder that trains an application while it is used",
                "my_app --server http://gpu-box:10086"),
            Verb("compat", "folders:compat",
                "Write a package `ajet`, so that a script for AgentJet runs with unchanged imports",
                "./shim && PYTHONPATH=./shim python train.py"),
        )),
        Verb("skills", "folders:skills",
            "Write instructions with which coding agents use this program", ".claude/skills"),
        Area("tokens", "Create, list or revoke tokens with which others watch, rate or operate", (
            Verb("add", "system.token:add", "Create a token and show it once",
                "anna --role rater --expires 8h"),
            reads("list", "system.token:listed", "List the tokens with role and end"),
            Verb("revoke", "system.token:revoke", "Make a token invalid at once", "anna"),
        ), "list"),
        reads("completion", "system.shell:completion",
            "Print the script with which bash, zsh or fish completes commands and options", "bash",
            json=False),
    ),
}  # fmt: skip
"""Title in `--help` -> its verbs."""


def verbs() -> Iterator[tuple[str, Verb]]:
    """Yield each verb with its whole name: `runs list`."""
    for entries in SECTIONS.values():
        for entry in entries:
            if isinstance(entry, Verb):
                yield entry.name, entry
            else:
                yield from ((f"{entry.name} {verb.name}", verb) for verb in entry.verbs)


def reading_words() -> list[str]:
    """Return the verbs that are allowed with `--read-only`."""
    return sorted(name for name, verb in verbs() if verb.reads)


_FORMER: Mapping[str, str] = {
    "engine-restart-process": "engine restart",
    "reward-test": "rewards test",
    "debug-episode": "run episode",
    "alert-dismiss": "alerts dismiss",
    "token": "tokens",
    "pin": "group pin",
    "note": "group note",
}


def present_name(former: str) -> str:
    """Return the name of a verb that had a name of its own before; empty for none.

    `engine-start` became `engine start`, and `unrate` became `group unrate`.
    """
    names = [name for name, _ in verbs()]
    if former in _FORMER or former.replace("-", " ", 1) in names:
        return _FORMER.get(former, former.replace("-", " ", 1))
    same = [name for name in names if name.endswith(f" {former}")]
    return same[0] if len(same) == 1 else ""
