"""Rules of the nine-player game, and the knowledge of each player.

Pure: no model, no clock, no files. Equal seeds and equal moves give equal games. A player is asked
with a `View`, which holds what that player may know and nothing else.
"""

import random
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

WOLF, SEER, WITCH, HUNTER, VILLAGER = "werewolf", "seer", "witch", "hunter", "villager"
ROLES = (WOLF,) * 3 + (SEER, WITCH, HUNTER) + (VILLAGER,) * 3
WOLVES, VILLAGE = "wolves", "village"
HEAL, POISON = "heal", "poison"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the game.

    Attributes:
        kind: `checked`, `healed`, `poisoned` (secret); `died`, `shot`, `said`, `voted`, `out`,
            `calm` (public).
        by: Whose deed; 0 nobody's.
        to: Whom it befell; 0 nobody.
        text: What was said, or what a check found.
        only: Who knows of it; None is everybody.
    """

    kind: str
    day: int
    by: int = 0
    to: int = 0
    text: str = ""
    only: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Knowledge of one player."""

    me: int
    role: str
    day: int
    night: bool
    alive: tuple[int, ...]
    pack: tuple[int, ...]
    """All werewolves, for a werewolf; empty for the others."""
    potions: tuple[str, ...]
    """Remaining potions, for the witch."""
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One player's turn.

    Attributes:
        kind: `kill`, `check`, `potion`, `shoot`, `speak` or `vote`.
        targets: Whom the move may name.
        victim: Of the pack's night, for a witch who can still heal; 0 nobody.
    """

    view: View
    kind: str
    targets: tuple[int, ...]
    victim: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """An answer. `Move()` abstains; an invalid move counts as one, too."""

    to: int = 0
    verb: str = ""
    """`heal` or `poison`, of the witch."""
    text: str = ""
    """Public speech."""


Turns = Generator[list[Ask], Sequence[Move], None]


def side_of(role: str) -> str:
    """Side that wins with this role."""
    return WOLVES if role == WOLF else VILLAGE


class Game:
    """One game. Players have the numbers 1 to 9.

    Args:
        seed: Who is what.
        days: If the werewolves have not won after so many, the village has.
    """

    def __init__(self, seed: int | str, days: int = 10) -> None:
        dealt = list(ROLES)
        random.Random(f"werewolves {seed}").shuffle(dealt)
        self.roles = dict(enumerate(dealt, 1))
        self.alive = sorted(self.roles)
        self.potions = [HEAL, POISON]
        self.events: list[Event] = []
        self.day, self.days, self.night = 1, days, True

    # --- who may know what -------------------------------------------------------------------

    def view(self, player: int) -> View:
        """Return the present knowledge of `player`."""
        role = self.roles[player]
        return View(
            me=player,
            role=role,
            day=self.day,
            night=self.night,
            alive=tuple(self.alive),
            pack=tuple(self.all_of(WOLF)) if role == WOLF else (),
            potions=tuple(self.potions) if role == WITCH else (),
            events=tuple(
                event for event in self.events if event.only is None or player in event.only
            ),
        )

    def all_of(self, role: str) -> list[int]:
        """Return the players of a role, including dead ones."""
        return [player for player, its in self.roles.items() if its == role]

    # --- the course of a game ----------------------------------------------------------------

    def play(self) -> Generator[list[Ask], Sequence[Move], str]:
        """Yield the turns of one moment; expects their moves in the same order.

        Returns:
            The side that has won.
        """
        for day in range(1, self.days + 1):
            self.day = day
            for part in (self._night, self._talk, self._vote):
                yield from part()
                if won := self.winner():
                    return won
        return VILLAGE

    def winner(self) -> str:
        """Return the winning side; empty while werewolves are alive but fewer than half."""
        wolves = sum(self.roles[player] == WOLF for player in self.alive)
        if not wolves:
            return VILLAGE
        return WOLVES if 2 * wolves >= len(self.alive) else ""

    def _night(self) -> Turns:
        self.night = True
        victim = yield from self._pack()
        # Seer and witch do not know of each other: they move at the same time.
        asks = [
            self._ask(player, kind, self._others(player), victim)
            for role, kind in ((SEER, "check"), (WITCH, "potion"))
            for player in self._living(role)
            if role == SEER or self.potions
        ]
        moves: Sequence[Move] = (yield asks) if asks else ()
        poisoned = 0
        for ask, move in zip(asks, moves, strict=True):
            me, own = ask.view.me, frozenset({ask.view.me})
            if ask.kind == "check" and move.to in ask.targets:
                result = WOLF if self.roles[move.to] == WOLF else "no werewolf"
                self._note("checked", me, move.to, text=result, only=own)
            elif move.verb == HEAL and ask.victim:
                self._note("healed", me, victim, only=own)
                self.potions.remove(HEAL)
                victim = 0
            elif move.verb == POISON and POISON in self.potions and move.to in ask.targets:
                self._note("poisoned", me, move.to, only=own)
                self.potions.remove(POISON)
                poisoned = move.to
        self.night = False
        yield from self._dawn(victim, poisoned)

    def _pack(self) -> Generator[list[Ask], Sequence[Move], int]:
        """Return the werewolves' victim; 0 when two are named as often."""
        wolves = self._living(WOLF)
        prey = tuple(player for player in self.alive if player not in wolves)
        asks = [self._ask(wolf, "kill", prey) for wolf in wolves]
        return _most(_named(asks, (yield asks)))

    def _dawn(self, victim: int, poisoned: int) -> Turns:
        """Announce deaths without cause or role; a hunter who was not poisoned shoots."""
        dead = sorted({victim, poisoned} - {0})
        if not dead:
            self._note("calm")
        for player in dead:
            self._note("died", to=player)
            self.alive.remove(player)
        for player in dead:
            if player != poisoned:
                yield from self._last_shot(player)

    def _last_shot(self, player: int) -> Turns:
        if self.roles[player] != HUNTER:
            return
        ask = self._ask(player, "shoot", tuple(self.alive))
        (move,) = yield [ask]
        if move.to in ask.targets:
            self._note("shot", player, move.to)
            self.alive.remove(move.to)

    def _talk(self) -> Turns:
        """Let all speak once, in turn; the first speaker changes every day."""
        first = (self.day - 1) % len(self.alive)
        for player in [*self.alive[first:], *self.alive[:first]]:
            (move,) = yield [self._ask(player, "speak", self._others(player))]
            self._note("said", player, text=move.text)

    def _vote(self) -> Turns:
        """Exclude the player with the most votes; a tie spares all."""
        asks = [self._ask(player, "vote", self._others(player)) for player in self.alive]
        named = _named(asks, (yield asks))
        for ask, to in zip(asks, named, strict=True):
            self._note("voted", ask.view.me, to)
        out = _most(named)
        self._note("out", to=out)
        if out:
            self.alive.remove(out)
            yield from self._last_shot(out)

    # --- small things --------------------------------------------------------------------------

    def _living(self, role: str) -> list[int]:
        return [player for player in self.alive if self.roles[player] == role]

    def _others(self, player: int) -> tuple[int, ...]:
        return tuple(other for other in self.alive if other != player)

    def _ask(self, player: int, kind: str, targets: tuple[int, ...], victim: int = 0) -> Ask:
        shown = victim if kind == "potion" and HEAL in self.potions else 0
        return Ask(self.view(player), kind, targets, shown)

    def _note(self, kind: str, by: int = 0, to: int = 0, **more: Any) -> None:
        self.events.append(Event(kind, self.day, by, to, **more))


def _named(asks: Sequence[Ask], moves: Sequence[Move]) -> list[int]:
    """Return whom each player names; 0 for nobody."""
    pairs = zip(asks, moves, strict=True)
    return [move.to if move.to in ask.targets else 0 for ask, move in pairs]


def _most(named: Sequence[int]) -> int:
    """Return the player who is named most; 0 for none, or when two are named as often."""
    top = [*Counter(filter(None, named)).most_common(2), (0, 0), (0, 0)]
    return top[0][0] if top[0][1] > top[1][1] else 0
