"""The throttle policy: how clients with different tasks share a batch (section 8.1).

It is the client's own doing. The server only keeps the task id of each claim, so that every client
can see whose tasks a batch holds.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from ajet_swarm.protocol.claim_models import SwarmThrottlePolicy
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import PoolInfo

METHOD = "rollout_until_finish_enough_tasks"
"""The only stop rule under which shares mean something."""
STILL = 0.5
"""Seconds for which nothing may have run in a batch that is not full until a task beyond a share
goes on, or the batch would never end. Between two tasks of a client nothing runs for a moment."""
OLDEST = 60.0
"""Seconds after which no reading of the batch is used any more."""


class BatchPlace:
    """A claim's place in its task's batch, from the moment it is let through."""

    def __init__(self, throttle: "Throttle", policy: SwarmThrottlePolicy) -> None:
        self.policy = policy
        self._throttle = throttle
        self._open = True

    def claimed(self) -> None:
        """The server gave an episode: readings that begin from now on have it."""
        if self._open:
            self._open = False
            self._throttle._claimed(self.policy)

    def release(self) -> None:
        """No episode came of it; does nothing once one did."""
        if self._open:
            self._open = False
            self._throttle._released(self.policy.current_task_id)


class Throttle:
    """Which tasks of one client may go on; any number of threads may ask.

    A claim that is let through counts from then on, before the server shows it: of many that ask
    at once no more pass than the share has room for.

    Args:
        client_uuid: Who we are to the server.
        clock: Steady seconds; the same that date the readings.
    """

    def __init__(self, client_uuid: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.client_uuid = client_uuid
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: deque[str] = deque()
        self._coming: Counter[str] = Counter()
        """Tasks of the claims on their way."""
        self._fresh: dict[str, float] = {}
        """Task -> when an episode of it was claimed last: no reading that is older has it."""
        self._still: tuple[Counter[str], float] | None = None
        """What the batch held while nothing ran, and since when."""

    def lets(
        self, policy: SwarmThrottlePolicy, pool: PoolInfo, read_at: float | None = None
    ) -> BatchPlace | None:
        """A place for an episode of the policy's task, or None when it has to wait.

        Args:
            policy: Share and task.
            pool: What the batch holds.
            read_at: When that was asked for; now when left out.

        Raises:
            SwarmError: the server ends its batches by another rule.
        """
        method = pool.sample_collection_method
        if method and method != METHOD:
            raise SwarmError(
                f"a throttle policy means nothing under the stop rule {method}",
                "throttle policy",
                f"Start the engine with {METHOD}, or leave the policy out",
            )
        with self._lock:
            now = self._clock()
            self._fresh = {task: at for task, at in self._fresh.items() if now - at < OLDEST}
            if not self._may(policy, pool, now if read_at is None else read_at):
                return None
            self._coming[policy.current_task_id] += 1
        return BatchPlace(self, policy)

    def _may(self, policy: SwarmThrottlePolicy, pool: PoolInfo, read_at: float) -> bool:
        own, alien, count = self._tasks(pool)
        unseen = self._coming.keys() | {t for t, at in self._fresh.items() if at >= read_at}
        complete = sum([n >= policy.expected_num_repeat for n in count.values()])
        if pool.running_episode_details or unseen or complete >= policy.expected_batch_size:
            self._still = None
        elif self._still is None or self._still[0] != count:
            self._still = count, read_at
        elif read_at - self._still[1] >= STILL:
            return True
        own |= unseen
        task = policy.current_task_id
        if task in self._passed or task in own or task in alien:
            return True
        return len(own - alien) < policy.expected_batch_size * policy.ratio

    def _claimed(self, policy: SwarmThrottlePolicy) -> None:
        task = policy.current_task_id
        with self._lock:
            self._gone(task)
            self._fresh[task] = self._clock()
            if task not in self._passed:
                self._passed.append(task)
                most = policy.expected_batch_size * policy.expected_num_repeat * 3
                while len(self._passed) > most:
                    self._passed.popleft()

    def _released(self, task: str) -> None:
        with self._lock:
            self._gone(task)

    def _gone(self, task: str) -> None:
        self._coming[task] -= 1
        if not self._coming[task]:
            del self._coming[task]

    def _tasks(self, pool: PoolInfo) -> tuple[set[str], set[str], Counter[str]]:
        """Tasks of ours, tasks of others, and how many episodes each has."""
        own: set[str] = set()
        alien: set[str] = set()
        count: Counter[str] = Counter()
        for task, clients in (pool.completed_tasks_client_uuids or {}).items():
            for client in clients:
                count[task] += 1
                if client == self.client_uuid:
                    own.add(task)  # as AgentJet's clients do: what follows is not looked at
                    break
                alien.add(task)
        for episode in (pool.running_episode_details or {}).values():
            task = episode.optional_task_id or ""
            count[task] += 1
            if episode.client_uuid != self.client_uuid:
                alien.add(task)
            elif task:
                own.add(task)
        return own, alien, count
