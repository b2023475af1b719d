"""Training: games until the updates are done; each side's episode has its own reward."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ajet_swarm import Retry, SwarmClient, Task, WorkflowOutput, run_episodes
from ajet_swarm.client.multi_server import JointSwarm
from ajet_swarm.protocol.errors import EngineOff
from ajet_swarm.protocol.schemas import EngineState
from examples.ask import Asker
from examples.stage import StageError, error_text
from examples.werewolves.agents import Model, Played, play
from examples.werewolves.game import Game, side_of
from examples.werewolves.settings import Settings

OFFLINE, ROLLING = EngineState.OFFLINE.wire, EngineState.ROLLING.wire
LOOK, STILL = 0.1, 5.0
"""Seconds between two checks for an update, and of ROLLING until no update is expected."""
AGAIN = Retry(tries=6, first=0.5, most=8.0, never=(EngineOff,))
"""Retries of a game that cannot be ended, over half a minute, until a model's server returns."""


@dataclass(slots=True)
class Batch:
    """Results of the games of one batch."""

    step: int
    games: list[Played] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def won(self, side: str) -> float:
        """Return the share of won games, the mean reward of this side."""
        return sum(game.winner == side for game in self.games) / max(len(self.games), 1)

    def read(self, role: str) -> float:
        """Return the share of a role's readable moves; 1 without a move."""
        asked = sum((game.asked for game in self.games), Counter[str]())[role]
        return 1.0 - sum(game.unread[role] for game in self.games) / max(asked, 1)


class Roll:
    """Plays for one client.

    Args:
        client: Of the server that trains.
        settings: The run.
        static: Plays the roles that are not trained.
        asker: For the calls of all models.
    """

    def __init__(
        self, client: SwarmClient, settings: Settings, static: Model, asker: Asker
    ) -> None:
        self._client, self._settings, self._static = client, settings, static
        self._asker = asker
        self._joint = JointSwarm({side: client for side in settings.sides})

    def game(self, task: Task) -> Played:
        """Play one game: one episode per trained side, claimed and ended together."""
        own, rules = self._settings, self._settings.own
        with self._joint.episode(task, own.idle, timeout=own.patience) as episode:
            models = {role: self._static for role in set(Game(0).roles.values())}
            for side, part in episode.parts.items():
                part.task = f"{task.task_id}/{side}"  # a group for each side: rewards are opposite
                policy = Model(part.api, rules.answer_tokens, rules.prompt)
                models |= {
                    role: policy for role in rules.trainable_targets if side_of(role) == side
                }
            game = Game(task.metadata["seed"], rules.days)
            played = play(game, models, self._asker, own.idle)
            episode.end({side: _output(played, side) for side in episode.parts})
        return played

    def batches(self) -> Iterator[Batch]:
        """Play batches until the job's steps are done.

        Raises:
            StageError: nothing can be played.
            SwarmError: the engine is OFFLINE and nobody starts it.
        """
        own, total, failed = self._settings, self._settings.job.total_training_steps, 0
        number = self._client.wait_until_rolling(timeout=own.patience)
        while True:
            step = self._client.wait_until_rolling(timeout=own.patience)
            tasks = self.tasks(number)
            repeated = [task for task in tasks for _ in range(int(own.job.num_repeat))]
            results = run_episodes(repeated, self.game, max_workers=own.games, retry=AGAIN)
            batch = Batch(step, [result.value for result in results if result.value is not None])
            batch.errors = [result.error for result in results if result.error is not None]
            failed, number = 0 if batch.games else failed + 1, number + 1
            updated = self._updated(step)
            yield batch
            if total is not None and updated and step >= int(total):
                return
            if failed >= 3:
                raise StageError("three batches without one game", error_text(batch.errors[0]))

    def tasks(self, batch: int) -> list[Task]:
        """Return the tasks of a batch, each a group of its own, even with the deal of another.

        A deal is either new or one of a few that are repeated.
        """
        own, tasks = self._settings, []
        for place in range(own.seeds):
            seed = batch * own.seeds + place
            seed = seed % own.own.deals if own.own.deals else seed
            name = f"batch-{batch}-task-{place}-deal-{seed}"
            tasks.append(Task(task_id=name, metadata={"seed": seed}))
        return tasks

    def _updated(self, step: int) -> bool:
        """Wait for the update of a full batch; return whether it came or the engine is OFFLINE.

        A batch that was not filled, or was lost with its server, brings none: then the engine goes
        on rolling, and more games are played.
        """
        end, rolling = time.monotonic() + self._settings.patience, 0.0
        while rolling < STILL and time.monotonic() < end:
            status, seen = self._client.get_engine_status()
            if status == OFFLINE or (seen.get("global_step") or 0) > step:
                return True
            rolling = rolling + LOOK if status == ROLLING else 0.0
            time.sleep(LOOK)
        return False


def _output(played: Played, side: str) -> WorkflowOutput:
    won = played.winner == side
    metrics = {"days": float(played.days), "unread": float(played.unread.total())}
    return WorkflowOutput(reward=float(won), is_success=won, log_metrics=metrics)
