"""Throttling by task: how clients with different tasks share a batch (section 8.1).

The client itself does it. The server only stores the task id of each claim, so that each client
can tell whose tasks a batch holds.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from ajet_swarm.protocol.claim_models import SwarmThrottlePolicy
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import PoolInfo

METHOD = "rollout_until_finish_enough_tasks"
"""The only stop rule under which shares have a meaning."""
STILL = 0.5
"""Seconds without a running episode after which a task beyond a share may go on, since the batch
would never fill up otherwise. Between two tasks of a client nothing runs for a moment."""
OLDEST = 60.0
"""Seconds after which a reading of the batch is too old to use."""


class BatchPlace:
    """The place of an admitted claim in the batch."""

    def __init__(self, throttle: "Throttle", policy: SwarmThrottlePolicy) -> None:
        self.policy = policy
        self._throttle = throttle
        self._open = True

    def claimed(self) -> None:
        """Record that an episode was claimed: readings from now on contain it."""
        if self._open:
            self._open = False
            self._throttle._claimed(self.policy)

    def release(self) -> None:
        """Release the place without an episode; do nothing once one was claimed."""
        if self._open:
            self._open = False
            self._throttle._released(self.policy.current_task_id)


class Throttle:
    """Admission of one client's claims to the batch, for any number of threads.

    An admitted claim counts at once, before the server reports it, so concurrent claims never
    exceed the share.

    Args:
        client_uuid: Identity of the client.
        clock: Monotonic seconds; the readings of the batch have the same clock.
    """

    def __init__(self, client_uuid: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.client_uuid = client_uuid
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: deque[str] = deque()
        self._coming: Counter[str] = Counter()
        """Admitted claims without a response, by task."""
        self._fresh: dict[str, float] = {}
        """Task -> time of its last claim, which older readings do not contain."""
        self._still: tuple[Counter[str], float] | None = None
        """Content of the batch while nothing ran, and since when."""

    def admit(
        self, policy: SwarmThrottlePolicy, pool: PoolInfo, read_at: float | None = None
    ) -> BatchPlace | None:
        """Return a place for an episode of the policy's task, or None when the task has to wait.

        Args:
            policy: Share and task.
            pool: A reading of the batch.
            read_at: Time at which the reading was requested; default now.

        Raises:
            SwarmError: the server ends its batches by another rule.
        """
        method = pool.sample_collection_method
        if method and method != METHOD:
            raise SwarmError(
                f"a throttle policy has no effect under the stop rule {method}",
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
        """Return this client's tasks, other clients' tasks, and the episodes of each."""
        own: set[str] = set()
        alien: set[str] = set()
        count: Counter[str] = Counter()
        for task, clients in (pool.completed_tasks_client_uuids or {}).items():
            for client in clients:
                count[task] += 1
                if client == self.client_uuid:
                    own.add(task)  # as in AgentJet's clients, the rest does not count
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
