"""The first steps: the purpose of the program, its loop, and a key for each way to start."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from ajet_swarm.common.text import one_line
from console.clients import catalog
from console.clients.catalog import ANY_KEY, DEFAULT_CONTEXT, DEFAULT_MODEL, Client, fill
from console.session.app_state import Session
from console.session.command_plans import refusal
from console.text.sections import Room, heading, lines
from console.text.wrap import wrapped
from core.state import Server

KEY = "${OPENAI_API_KEY:-" + ANY_KEY + "}"
"""Placeholder of the key in shell lines, because the console does not have it."""
LOOP = (
    "                  ┌────── new weights ──────┐",
    "                  ▼                         │",
    " application ──▶ {n} answers ──▶ rewards ──▶ {end}",
    "      ▲                           │",
    "      └──────── best answer ──────┘",
)
OBSERVED = (
    " application ──▶ {n} answers ──▶ rewards ──▶ {end}",
    "      ▲                           │",
    "      └──────── best answer ──────┘",
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    key: str
    """Empty for a line without a key."""
    text: str


def is_first_start(session: Session) -> bool:
    """Return whether the journal has no request yet."""
    state = session.state
    return session.seen and session.replay is None and not (state.groups or state.totals.groups)


def steps(session: Session, client: Client | None = None) -> list[Step]:
    """Return the steps that work from here.

    Args:
        client: A client program found on this machine.
    """
    state = session.state
    if state.watch_only:
        return [
            Step("5", "Engine: states, curves and checkpoints of the servers"),
            Step("9", "Servers: clients, episodes, tasks and log, side by side"),
        ]
    result = []
    if server := to_start(session):
        result.append(Step("s", f"Start the engine: {one_line(server.name, 30)} is OFFLINE"))
        if session.processes is not None and not ready(session):
            result.append(Step("", "Then m starts the mock user, r one question to rate by hand"))
    held = state.rating_mode == "hold"
    if may_mock(session):
        after = "; each answer waits for your rating (3)" if held else ""
        result.append(Step("m", f"Start the mock user{after or f' and watch it {_goal(session)}'}"))
    elif session.mock_running:
        coming = ": wait for its first group" if is_first_start(session) else ""
        result.append(Step("", f"The mock user is running{coming}"))
    if state.proxy_url:
        url = one_line(state.proxy_url, 200)
        result.append(Step("c", f"Copy a curl line; applications use {url}/v1"))
    if state.proxy_url and client is not None:
        result.append(Step("v", f"Copy the settings of {client.title}, found on this machine"))
    if may_mock(session):
        mode = "hold" if held else "answer first"
        result.append(Step("r", f"Rate by hand: sends one question, mode {mode}"))
    if session.offers_setup and is_first_start(session):
        result.append(Step("w", "Setup: five questions choose dataset, rewards, engine and rating"))
    return result


def _goal(session: Session) -> str:
    observed = any(server.state == "OBSERVING" for server in session.state.servers.values())
    return "score answers" if observed else "learn"


def may_mock(session: Session) -> bool:
    """Return whether the mock user can be started from here and its requests get answers."""
    able = (
        session.processes is not None and session.allows("mock.start") and not session.mock_running
    )
    return able and ready(session)


def ready(session: Session) -> bool:
    """Return whether a server answers requests, or soon does."""
    servers = session.state.servers.values()
    return any(not server.lost and server.state != "OFFLINE" for server in servers)


def to_start(session: Session) -> Server | None:
    """Return a server whose engine is OFFLINE and can be started from here."""
    if not session.allows("engine.start"):
        return None
    return next(
        (
            server
            for server in session.state.servers.values()
            if refusal(session, "engine.start", server=server.name) is None
        ),
        None,
    )


def content(session: Session, room: Room, client: Client | None = None) -> Content:
    """Return the text, the drawing and the steps."""
    sections: list[Content] = [heading("FIRST STEPS")]
    for text in _about(session):
        sections += [Content(line) for line in wrapped(text, max(20, room.width))]
    blank = [Content("")] if room.tall else []
    if not session.state.watch_only:
        sections += [*blank, *(Content.styled(text, "$muted") for text in loop(session)), *blank]
    for step in steps(session, client):
        key = (f" {step.key or '·'}  ", "bold $accent")
        sections.append(Content.assemble(key, step.text))
    return lines(*sections)


def _about(session: Session) -> Sequence[str]:
    if session.state.watch_only:
        return (
            "This console is watch-only: it shows what swarm servers do for other clients. "
            "It starts nothing, claims nothing and answers no requests.",
        )
    if _goal(session) != "learn":
        return (
            "ajet-console scores what a language model answers to your application. "
            "Observe mode: rewards and ratings are recorded, nothing is trained.",
        )
    return (
        "ajet-console trains a language model while an application uses it. "
        "Each request gets several answers: the best one goes back, all of them train the model.",
    )


def loop(session: Session) -> list[str]:
    """Return the drawing of the loop."""
    pools = [server.pool for server in session.state.servers.values() if server.pool is not None]
    repeats = str(pools[0].repeats) if pools and pools[0].repeats else "N"
    learns = _goal(session) == "learn"
    end = "update" if learns else "journal"
    return [step.format(n=repeats[:1], end=end) for step in (LOOP if learns else OBSERVED)]


def curl_line(session: Session) -> str:
    """Return a command line that sends one question to the proxy."""
    client = catalog.find("curl")[0]
    return settings_of(client, session).replace("'", '"', 2)


def settings_of(client: Client, session: Session, context: int = DEFAULT_CONTEXT) -> str:
    """Return the settings of a client with the address of this proxy, for a shell.

    Args:
        context: Tokens of the policy's window.
    """
    url = session.state.proxy_url
    texts = [fill(snippet.text, url, KEY, DEFAULT_MODEL, context) for snippet in client.snippets]
    return "\n".join(texts)


def installed() -> Client | None:
    """Return the first installed client whose settings are shell lines; None for none.

    It reads the disk.
    """
    return next((client for client in catalog.installed() if _is_shell(client)), None)


def _is_shell(client: Client) -> bool:
    return all(snippet.language == "sh" and not snippet.file for snippet in client.snippets)
