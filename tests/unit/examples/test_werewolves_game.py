"""The nine-player game: its rules and its secrets."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from examples.werewolves.game import (
    HEAL,
    HUNTER,
    POISON,
    ROLES,
    SEER,
    VILLAGE,
    VILLAGER,
    WITCH,
    WOLF,
    WOLVES,
    Ask,
    Event,
    Game,
    Move,
)
from examples.werewolves.prompts import Limits, messages

pytestmark = pytest.mark.slow

Choose = Callable[[Ask], Move]


def fixed(*order: str, days: int = 10) -> Game:
    """A game whose players 1 to 9 have these roles: wolves 1 2 3, seer 4, witch 5, hunter 6."""
    game = Game(0, days)
    game.roles = dict(enumerate(order or ROLES, 1))
    return game


def drive(game: Game, choose: Choose) -> str:
    """Play to the end; the winner."""
    course = game.play()
    asks = next(course)
    try:
        while True:
            asks = course.send([choose(ask) for ask in asks])
    except StopIteration as over:
        return str(over.value)


def votes_of(game: Game, kind: str, day: int = 0) -> list[tuple[int, int]]:
    return [
        (event.by, event.to)
        for event in game.events
        if event.kind == kind and day in (0, event.day)
    ]


def moves(day: int = 1, **kinds: Callable[[Ask], Move] | int) -> Choose:
    """On one day the moves passed, by kind of ask; else all players abstain."""

    def choose(ask: Ask) -> Move:
        chosen = kinds.get(ask.kind, 0) if ask.view.day == day else 0
        return Move(chosen) if isinstance(chosen, int) else chosen(ask)

    return choose


def test_the_table_is_complete_and_dealt_by_the_seed() -> None:
    games = [Game(seed) for seed in range(30)]
    assert all(sorted(game.roles.values()) == sorted(ROLES) for game in games)
    assert Game(7).roles == Game(7).roles
    assert len({tuple(game.roles.values()) for game in games}) == 30
    assert (sorted(ROLES).count(WOLF), sorted(ROLES).count(VILLAGER)) == (3, 3)


@pytest.mark.parametrize(
    ("named", "dead"),
    [
        ({1: 7, 2: 7, 3: 7}, [7]),
        ({1: 7, 2: 7, 3: 8}, [7]),
        ({1: 7, 2: 8, 3: 0}, []),
        ({1: 7}, [7]),
        ({}, []),
    ],
)
def test_the_player_most_wolves_name_dies(named: dict[int, int], dead: list[int]) -> None:
    game = fixed(days=1)
    drive(game, moves(kill=lambda ask: Move(named.get(ask.view.me, 0))))
    assert [to for _, to in votes_of(game, "died")] == dead
    assert bool(votes_of(game, "calm")) == (not dead)


def test_a_wolf_cannot_kill_a_wolf() -> None:
    game = fixed(days=1)
    drive(game, moves(kill=2))
    assert not votes_of(game, "died")


def test_the_seer_learns_the_side_and_nobody_else_does() -> None:
    for target, value in ((2, WOLF), (6, "no werewolf")):
        game = fixed(days=1)
        drive(game, moves(check=target))
        (event,) = (one for one in game.events if one.kind == "checked")
        assert (event.by, event.to, event.text, event.only) == (4, target, value, frozenset({4}))


def test_the_witch_heals_once_and_poisons_once() -> None:
    potion_choices: list[tuple[int, tuple[str, ...]]] = []

    def choose(ask: Ask) -> Move:
        if ask.kind == "kill":
            return Move(7)
        if ask.kind == "potion":
            potion_choices.append((ask.victim, ask.view.potions))
            return Move(verb=HEAL) if ask.view.day != 2 else Move(8, POISON)
        return Move()

    game = fixed(days=3)
    drive(game, choose)
    # without a potion the witch is not asked any more
    assert potion_choices == [(7, (HEAL, POISON)), (0, (POISON,))]
    assert (votes_of(game, "died", 1), votes_of(game, "died", 2)) == ([], [(0, 7), (0, 8)])
    secrets = [event for event in game.events if event.kind in ("healed", "poisoned")]
    assert [secret.only for secret in secrets] == [frozenset({5})] * 2


@pytest.mark.parametrize("how", ["kill", "vote"])
def test_a_hunter_who_dies_shoots(how: str) -> None:
    game = fixed(days=1)
    drive(game, moves(shoot=1, **{how: 6}))
    assert votes_of(game, "shot") == [(6, 1)]
    assert 1 not in game.alive
    assert 6 not in game.alive


@pytest.mark.parametrize("kill", [0, 6])
def test_a_poisoned_hunter_does_not_shoot_killed_as_well_or_not(kill: int) -> None:
    game = fixed(days=1)
    drive(game, moves(kill=kill, shoot=1, potion=lambda _: Move(6, POISON)))
    assert votes_of(game, "died") == [(0, 6)]
    assert not votes_of(game, "shot")


def test_speeches_go_round_from_another_place_each_day() -> None:
    game = fixed(days=2)
    drive(game, lambda ask: Move(text=f"I am {ask.view.me}"))
    assert [by for by, _ in votes_of(game, "said", 1)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [by for by, _ in votes_of(game, "said", 2)] == [2, 3, 4, 5, 6, 7, 8, 9, 1]


@pytest.mark.parametrize(("second", "out"), [(8, 0), (7, 7), (0, 7)])
def test_the_most_voted_is_out_and_a_tie_spares_all(second: int, out: int) -> None:
    game = fixed(days=1)
    drive(game, moves(vote=lambda ask: Move({1: 7, 2: second}.get(ask.view.me, 0))))
    assert votes_of(game, "out") == [(0, out)]


def test_the_village_wins_without_wolves_and_when_the_days_are_over() -> None:
    game = fixed()
    assert drive(game, lambda ask: Move(min(ask.targets) if ask.kind == "vote" else 0)) == VILLAGE
    assert set(game.all_of(WOLF)).isdisjoint(game.alive)
    assert drive(fixed(days=2), lambda _: Move()) == VILLAGE


def test_the_wolves_win_when_they_are_no_fewer() -> None:
    game = fixed()
    kill = {1: 7, 2: 8, 3: 9}
    assert drive(game, lambda a: Move(kill[a.view.day] if a.kind == "kill" else 0)) == WOLVES
    assert (len(game.alive), game.day) == (6, 3)


def test_the_hunters_shot_decides_before_anybody_wins() -> None:
    game = fixed(WOLF, WOLF, WOLF, HUNTER, SEER, WITCH, VILLAGER, VILLAGER, VILLAGER)
    game.alive = [1, 4, 5]
    assert drive(game, moves(kill=4, shoot=1)) == VILLAGE


def wild(chance: random.Random) -> Choose:
    """Any move, allowed or not."""

    def choose(ask: Ask) -> Move:
        to = chance.choice([*ask.targets, *ask.targets, 0, 12])
        verb = chance.choice([HEAL, POISON, ""]) if ask.kind == "potion" else ""
        return Move(to, verb, f"I say {chance.randint(1, 9)}")

    return choose


def unknown(game: Game, player: int) -> list[int]:
    """Other players whose role `player` does not know."""
    known = {
        event.by for event in game.events if event.kind == "shot"
    }  # a hunter who shot is known
    known |= {to for by, to in votes_of(game, "checked") if by == player}
    if game.roles[player] == WOLF:
        known |= set(game.all_of(WOLF))
    return [role for role in game.roles if role != player and role not in known]


def otherwise(game: Game, player: int, chance: random.Random) -> Game:
    """A game that is another in all that `player` may not know, and the same in all it may."""
    twin = Game(0, game.days)
    twin.day, twin.night, twin.alive = game.day, game.night, list(game.alive)
    twin.roles, others = dict(game.roles), unknown(game, player)
    mixed = [game.roles[other] for other in others]
    chance.shuffle(mixed)
    twin.roles.update(zip(others, mixed, strict=True))
    own = [event for event in game.events if event.only is None or player in event.only]
    hidden: Sequence[Event] = [
        Event(kind, game.day, chance.choice(others), 9, "werewolf", frozenset(others))
        for kind in ("checked", "healed", "poisoned")
        if others
    ]
    twin.events = [*hidden, *own, *hidden]
    twin.potions = list(game.potions) if game.roles[player] == WITCH else []
    return twin


@pytest.mark.parametrize("limits", [Limits(), Limits(4000, True, 300)], ids=["small", "large"])
def test_no_prompt_depends_on_what_its_player_may_not_know(limits: Limits) -> None:
    """Whatever the others' roles and secret deeds are, the prompt is the same to the letter."""
    compared = 0
    for seed in range(25):
        chance = random.Random(seed)
        game, wildly = Game(seed, 6), wild(chance)

        def choose(
            ask: Ask, game: Game = game, chance: random.Random = chance, then: Choose = wildly
        ) -> Move:
            nonlocal compared
            player = ask.view.me
            twin = otherwise(game, player, chance)
            compared += twin.roles != game.roles
            assert messages(replace(ask, view=twin.view(player)), limits) == messages(ask, limits)
            if ask.kind in ("check", "potion", "speak"):
                assert ask.targets == tuple(one for one in game.alive if one != player)
            assert not ask.victim or (ask.kind == "potion" and HEAL in game.potions)
            return then(ask)

        drive(game, choose)
    assert compared > 1000
