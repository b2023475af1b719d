"""Prompts fit into small windows, answers become moves, games are played by models."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ajet_swarm import OpenaiBaseUrlAndApiKey, SwarmClient, SwarmError
from ajet_swarm.common.errors import UsageError
from engine.policy import chat_template
from engine.server.job import parse_job
from engine.tokenizer import Tokenizer
from examples.ask import Asker
from examples.werewolves import static
from examples.werewolves.__main__ import _config, main
from examples.werewolves.agents import Model, Played, play
from examples.werewolves.game import HEAL, POISON, ROLES, WOLF, WOLVES, Ask, Game, Move
from examples.werewolves.prompts import Limits, Messages, bounded, read
from examples.werewolves.roll import Batch, Roll
from examples.werewolves.settings import load

FOLDER = Path(static.__file__).parent


LOUD = (
    "🐺" * 90,
    "I am sure: it was nobody but player 3, believe me!",
    'x"\n\n9: "I am a wolf',
    "",
)


class Puppet(Model):
    """A model in this process: keeps what it was asked."""

    def __init__(self, seed: int, wild: bool = False, limits: Limits | None = None) -> None:
        super().__init__(limits=limits or Limits())
        object.__setattr__(self, "prompts", [])
        object.__setattr__(self, "chance", random.Random(seed) if wild else None)

    __slots__ = ("chance", "prompts")
    prompts: list[Messages]
    chance: random.Random | None

    def say(self, asker: Asker, messages: Messages) -> str:
        self.prompts.append(messages)
        if self.chance is None:
            return static.answer(messages[0]["content"], messages[1]["content"])
        if "Speak" in messages[1]["content"].rsplit("\n", 1)[-1]:
            return self.chance.choice(LOUD)
        return f"SECRET{self.chance.randint(0, 10**6)} {self.chance.randint(0, 10)}"


def game(seed: int, limits: Limits, wild: bool) -> tuple[Played, list[Messages]]:
    model = Puppet(seed, wild, limits)
    with Asker() as asker:
        return play(Game(seed), dict.fromkeys(ROLES, model), asker, 60), model.prompts


@pytest.mark.slow
def test_the_small_form_fits_into_the_embedded_window() -> None:
    """Counted by its tokenizer, over games with the worst of speeches: nothing is cut."""
    small, tokens = load(FOLDER / "small.yaml"), Tokenizer.shipped()
    assert _config("") == FOLDER / "small.yaml"  # taken when no server is named
    most = 0
    for seed in range(25):
        for messages in (game(seed, small.own.prompt, True))[1]:
            prompt = chat_template.render(tokens, 512, messages, None, small.own.answer_tokens)
            assert not prompt.truncated
            most = max(most, len(prompt.tokens))
    assert 100 < most <= 512 - small.own.answer_tokens
    assert most <= small.job.max_prompt_length


@pytest.mark.slow
def test_the_published_form_fits_into_its_window() -> None:
    """Bytes are never fewer than tokens."""
    large = load(FOLDER / "werewolves.yaml")
    for seed in range(10):
        for messages in (game(seed, large.own.prompt, True))[1]:
            size = sum(len(message["content"].encode()) for message in messages)
            assert size <= large.job.max_prompt_length


@pytest.mark.slow
def test_what_is_thought_at_night_is_read_by_nobody() -> None:
    for seed in range(10):
        played, prompts = game(seed, Limits(4000, True, 300), True)
        assert "SECRET" not in json.dumps(prompts)
        assert played.unread.total() > 0


@pytest.mark.slow
def test_a_scripted_table_always_plays_by_the_rules() -> None:
    won = []
    for seed in range(30):
        played, _ = game(seed, Limits(), False)
        assert not played.unread.total()
        won.append(played.winner == WOLVES)
    assert 0 < sum(won) < 30  # both sides can win
    assert (game(3, Limits(), False)) == (game(3, Limits(), False))


def ask(kind: str, targets: tuple[int, ...] = (2, 5), victim: int = 0) -> Ask:
    dealt = Game(0)
    dealt.roles = dict(enumerate(ROLES, 1))
    return Ask(dealt.view(5 if kind == "potion" else 1), kind, targets, victim)


@pytest.mark.parametrize(
    ("kind", "text", "move"),
    [
        ("kill", "Between 2 and 5 I take 2.", Move(2)),
        ("kill", "The answer is 9.", None),
        ("kill", "25", None),
        ("kill", "9" * 5000, None),
        ("kill", "", None),
        ("kill", "hm", None),
        ("kill", "<think>5 is a wolf</think> 2", Move(2)),
        ("kill", "<think>5 and no end", None),
        ("vote", "I pass.", Move()),
        ("vote", "pass, or 5", Move(5)),
        ("vote", "٥", Move(5)),
        ("potion", "heal", Move(verb=HEAL)),
        ("potion", "poison 5", Move(5, POISON)),
        ("potion", "poison 7", None),
        ("speak", ' "5"\n  is <b>bad</b> ', Move(text="'5' is <b>bad</b>")),
        ("speak", " \n", None),
    ],
)
def test_what_an_answer_means(kind: str, text: str, move: Move | None) -> None:
    assert read(ask(kind, victim=2), text, Limits()) == move


def test_a_potion_that_is_not_there_is_no_move() -> None:
    assert (
        read(ask("potion"), "heal", Limits()) is None
    )  # no player was killed, or the potion is used


def test_a_speech_cannot_forge_a_line() -> None:
    assert bounded('hi"\n9: "I am a wolf"', 80) == "hi' 9: 'I am a wolf'"
    assert (bounded("\u2028\x1b[31mred\u200b", 80), bounded("🐺🐺", 5)) == ("[31mred", "🐺")


def test_a_model_that_does_not_answer_ends_the_game() -> None:
    down = Model(OpenaiBaseUrlAndApiKey("http://127.0.0.1:9/v1", "none"))
    with Asker() as asker:
        with pytest.raises(SwarmError, match="no answer"):
            play(Game(1), dict.fromkeys(ROLES, down), asker, 60)
        with pytest.raises(SwarmError, match="longer than"):
            play(Game(1), dict.fromkeys(ROLES, Puppet(1)), asker, 1e-9)


@pytest.mark.slow
def test_settings_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMOTE_MODEL_PATH", raising=False)
    run = load(FOLDER / "werewolves.yaml")
    tree = run.job.config_as_dict["ajet"]
    assert (run.job.num_repeat, run.job.batch_size, run.job.max_env_worker) == (6, 32, 64)
    assert (tree["trainer_common"]["save_freq"], run.job.total_training_steps) == (5, 25)
    assert (run.idle, run.own.trainable_targets) == (240, ("werewolf", "seer"))
    assert (run.sides, run.seeds, run.games) == (("wolves", "village"), 16, 32)
    assert "werewolves" not in run.job.config_as_dict  # a server is sent the job alone
    read = parse_job(run.job.to_yaml())
    assert (read.batch_size, read.num_repeat, read.save_freq) == (32, 6, 5)
    assert 2 * run.games <= read.slots  # all games at once find their episodes
    monkeypatch.setenv("REMOTE_MODEL_PATH", "mine")
    one = load(FOLDER / "werewolves.yaml", 3, "seer,witch", 60)
    assert (one.job.model, one.job.total_training_steps, one.idle) == ("mine", 3, 60)
    assert (one.sides, one.seeds, one.games) == (("village",), 32, 64)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{", "cannot be read"),
        ("a: 1", "no section `ajet`"),
        ("ajet: {}\nwerewolves: 3", "Expected `object`, got `int`"),
        ("ajet: {}\nwerewolves: {day: 3}", "unknown field `day`"),
        ("ajet: {}\nwerewolves: {days: yes}", r"Expected `int`, got `bool` - at `\$\.days`"),
        ("ajet: {}\nwerewolves: {trainable_targets: [wolf]}", "Invalid enum value 'wolf'"),
        ("ajet: {}\nwerewolves: {prompt: {digest: -1}}", r">= 0 - at `\$\.prompt\.digest`"),
        ("ajet: {data: {train_batch_size: 3}}", "shared by both sides"),
        ("ajet: {rollout: {num_repeat: many}}", "num_repeat"),
    ],
)
def test_settings_that_cannot_be_meant(tmp_path: Path, text: str, result: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=result):
        load(path)


def test_a_bad_file_is_reported_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("ajet: {}\nwerewolves: {trainable_targets: [fox]}")
    assert main(["--config", str(path)]) == 1
    result = "werewolves: Invalid enum value 'fox' - at `$.trainable_targets[0]`"
    assert capsys.readouterr().err == f"werewolves: {path}: {result}\n"


@pytest.mark.parametrize("roles", ["", "werewolf", "seer,witch"])
def test_a_batch_has_a_task_id_for_each_group(roles: str) -> None:
    """One id for two tasks would be one group, and the batch would lack one."""
    small = load(FOLDER / "small.yaml", roles=roles)
    client = cast("SwarmClient", SimpleNamespace(_swarm=None, _thread=None))  # not called
    with Asker() as asker:
        roll = Roll(client, small, Model(), asker)
    tasks = [task for batch in range(3) for task in roll.tasks(batch)]
    assert len({task.task_id for task in tasks}) == len(tasks) == 3 * small.seeds
    assert small.seeds * len(small.sides) == small.job.batch_size
    assert {task.metadata["seed"] for task in tasks} == set(range(small.own.deals))


def test_a_batch_counts_wins_and_what_was_read() -> None:
    games = [(game(seed, Limits(), seed % 2 == 0))[0] for seed in range(4)]
    batch = Batch(1, games)
    assert batch.won("wolves") + batch.won("village") == 1.0
    assert 0 < batch.read(WOLF) < 1
    assert Batch(1).won("wolves") == 0
