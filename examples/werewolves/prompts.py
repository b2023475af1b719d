"""Prompts of limited length from a player's knowledge, and moves from answers.

Nothing here knows the game, only the view: what a prompt says, its player may know.
"""

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from examples.werewolves.game import HEAL, POISON, Ask, Event, Move, View

QUESTIONS = {
    "kill": "Whom do you kill tonight?",
    "check": "Whom do you check?",
    "potion": "Whom do you poison?",
    "shoot": "You die. Whom do you shoot?",
    "speak": "Speak to all. Whom do you suspect?",
    "vote": "Whom do you vote out?",
}
RULES = (
    "Nine players: 3 werewolves, a seer, a witch, a hunter, 3 villagers. At night the werewolves "
    "agree on a victim, the seer learns of one player whether it is a werewolf, the witch may heal "
    "the victim once and poison one player once. By day all speak, then vote one out. The hunter "
    "shoots one when he dies, unless poisoned. Roles of the dead stay secret. Werewolves win when "
    "they are no fewer than the others, the village when no werewolf is left. Answer with the "
    "number of one player, or `pass`; speak in at most two sentences."
)
_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_PASS = re.compile(r"\b(pass|nobody|no one|abstain)\b", re.IGNORECASE)
Messages = list[dict[str, str]]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a prompt's length.

    Attributes:
        digest: Bytes of the game so far; what one knows for oneself and the deaths always fit in.
        rules: Whether the rules are told: about 150 tokens.
        speech: Bytes kept of a speech.
    """

    digest: Annotated[int, Meta(ge=0)] = 420
    rules: bool = False
    speech: Annotated[int, Meta(ge=0)] = 48


# --- asking ---------------------------------------------------------------------------------------


def messages(ask: Ask, limits: Limits) -> Messages:
    """Return the prompt of a turn."""
    view = ask.view
    when = f"{'Night' if view.night else 'Day'} {view.day}. Alive: {_numbers(view.alive)}."
    user = "\n".join([when, *digest(view, limits), question(ask)])
    lines = [f"Be brief. You are player {view.me}, a {view.role}."]
    if view.pack:
        lines.append(f"The pack: {_numbers(view.pack)}.")
    system = " ".join([*lines, RULES] if limits.rules else lines)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def question(ask: Ask) -> str:
    """Return the last line: the question and the players that the answer may name."""
    asked = QUESTIONS[ask.kind]
    if ask.kind == "potion":
        if ask.victim:
            asked = f"{ask.victim} was killed. Heal, or whom do you poison?"
            if POISON not in ask.view.potions:
                return f"{ask.victim} was killed. Heal or pass?"
        elif POISON not in ask.view.potions:
            return "Nobody was killed. Pass?"
    return f"{asked} {', '.join(map(str, sorted(ask.targets, reverse=True)))}"


def digest(view: View, limits: Limits) -> list[str]:
    """Return the game so far in at most `limits.digest` bytes, in chronological order.

    What one knows for oneself, then deaths, then what was said and voted, the newest of it.
    """
    parts = list(_known(view))
    left = limits.digest - sum(len(line.encode()) + 1 for line in parts)
    talk: list[str] = []
    for line in _talk(view, limits.speech):
        left -= len(line.encode()) + 1
        if left < 0:
            break
        talk.append(line)
    return [*parts, *reversed(talk)]


def _known(view: View) -> Iterator[str]:
    """Yield the player's secrets and all deaths, one line each, about 200 bytes at most."""
    for kind, label in (("checked", "Checked"), ("healed", "Healed"), ("poisoned", "Poisoned")):
        matching = [event for event in view.events if event.kind == kind]
        if matching:
            yield f"{label}: {', '.join(f'{event.to} {event.text}'.strip() for event in matching)}."
    if view.potions:
        yield f"Potions: {', '.join(view.potions)}."
    for name, kind, form in (
        ("Died", "died", "{0.to} night {0.day}"),
        ("Voted out", "out", "{0.to} day {0.day}"),
        ("Shot", "shot", "{0.to} by {0.by}"),
    ):
        deaths = [form.format(event) for event in view.events if event.kind == kind and event.to]
        if deaths:
            yield f"{name}: {', '.join(deaths)}."


def _talk(view: View, speech: int) -> Iterator[str]:
    """Yield speeches and ballots, newest first; a ballot is one line."""
    ballot: list[Event] = []
    for event in [*reversed(view.events), Event("", 0)]:
        if ballot and event.kind != "voted":
            yield f"Votes: {_pairs(ballot[::-1])}."
            ballot = []
        if event.kind == "voted":
            ballot.append(event)
        elif event.kind == "said":
            yield f'{event.by}: "{bounded(event.text, speech)}"'


def _pairs(events: list[Event]) -> str:
    return " ".join(f"{event.by}>{event.to or '-'}" for event in events)


def _numbers(players: tuple[int, ...]) -> str:
    return " ".join(map(str, players))


# --- reading --------------------------------------------------------------------------------------


def read(ask: Ask, answer: str, limits: Limits) -> Move | None:
    """Return the move in an answer; None without a valid one.

    A number is the last one of the answer. A speech is always one, if it says something.
    """
    text = _THOUGHT.sub("", answer).strip()
    if ask.kind == "speak":
        spoken = bounded(text, limits.speech)
        return Move(text=spoken) if spoken else None
    numbers = re.findall(r"\d+", text)
    to = int(numbers[-1][:9]) if numbers else 0
    if ask.kind == "potion":
        if ask.victim and re.search(r"\bheal", text, re.IGNORECASE):
            return Move(verb=HEAL)
        if to in ask.targets and POISON in ask.view.potions:
            return Move(to, POISON)
    elif to in ask.targets:
        return Move(to)
    return Move() if not numbers and _PASS.search(text) else None


def accused(text: str, players: tuple[int, ...]) -> int:
    """Return the last number in a speech that is one of `players`; 0 without one."""
    named = map(int, reversed(re.findall(r"\b\d\b", text)))
    return next((player for player in named if player in players), 0)


def bounded(text: str, room: int) -> str:
    """Return a text as one line of at most `room` bytes without quotation marks."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    cut = line.replace('"', "'").encode("utf-8", "replace")[:room]
    return cut.decode("utf-8", "ignore").strip()
