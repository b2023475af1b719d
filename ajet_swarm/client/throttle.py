"""Throttling by task: how clients with different tasks share a batch (section 8.1).

Each client limits itself. The server only stores the task id of each claim, from which a client
determines which tasks of a batch belong to which client.
"""

from collections import Counter, deque
from collections.abc import Callable

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.models import SwarmThrottlePolicy
from ajet_swarm.protocol.schemas import PoolInfo
from ajet_swarm.runtime import SYSTEM

METHOD = "rollout_until_finish_enough_tasks"
"""The only stop rule under which shares of a batch are meaningful."""
STILL = 0.5
"""Seconds without a running episode after which a task beyond the share is admitted, since the
batch would never be completed otherwise. A client runs nothing for a moment between two tasks."""
OLDEST = 60.0
"""Seconds after which a claim is contained in every reading of the batch that is still used."""


class Throttle:
    """Admission of one client's claims to the batch; use it from one thread only.

    An admitted claim counts at once, before the server reports it, so that concurrent claims never
    exceed the share.

    Args:
        client_uuid: Identity of the client.
        clock: Returns monotonic seconds; times of readings are on the same clock.
    """

    def __init__(
        self, client_uuid: str, clock: Callable[[], float] = SYSTEM.clock.monotonic
    ) -> None:
        self.client_uuid = client_uuid
        self._clock = clock
        self._admitted: deque[str] = deque()
        self._pending: Counter[str] = Counter()
        """Admitted claims without a response, by task."""
        self._claimed_at: dict[str, float] = {}
        """Task -> time of its last claim, which older readings do not contain."""
        self._stalled: tuple[Counter[str], float] | None = None
        """Episodes by task of a batch without running episodes, and since when it is unchanged."""

    def admit(
        self, policy: SwarmThrottlePolicy, pool: PoolInfo, read_at: float | None = None
    ) -> bool:
        """Admit a claim of the policy's task, until `end`; return False when the task has to wait.

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
        now = self._clock()
        self._claimed_at = {task: at for task, at in self._claimed_at.items() if now - at < OLDEST}
        if not self._fits(policy, pool, now if read_at is None else read_at):
            return False
        self._pending[policy.current_task_id] += 1
        return True

    def _fits(self, policy: SwarmThrottlePolicy, pool: PoolInfo, read_at: float) -> bool:
        own, foreign, count = self._tasks(pool)
        unseen = self._pending.keys() | {t for t, at in self._claimed_at.items() if at >= read_at}
        complete = sum([n >= policy.expected_num_repeat for n in count.values()])
        if pool.running_episode_details or unseen or complete >= policy.expected_batch_size:
            self._stalled = None
        elif self._stalled is None or self._stalled[0] != count:
            self._stalled = count, read_at
        elif read_at - self._stalled[1] >= STILL:
            return True
        own |= unseen
        task = policy.current_task_id
        if task in self._admitted or task in own or task in foreign:
            return True
        return len(own - foreign) < policy.expected_batch_size * policy.ratio

    def end(self, policy: SwarmThrottlePolicy, *, claimed: bool) -> None:
        """Record the answer to an admitted claim; later readings contain a granted episode."""
        task = policy.current_task_id
        self._pending[task] -= 1
        if not self._pending[task]:
            del self._pending[task]
        if not claimed:
            return
        self._claimed_at[task] = self._clock()
        if task not in self._admitted:
            self._admitted.append(task)
            most = policy.expected_batch_size * policy.expected_num_repeat * 3
            while len(self._admitted) > most:
                self._admitted.popleft()

    def _tasks(self, pool: PoolInfo) -> tuple[set[str], set[str], Counter[str]]:
        """Return this client's tasks, other clients' tasks, and the episodes of each."""
        own: set[str] = set()
        foreign: set[str] = set()
        count: Counter[str] = Counter()
        for task, clients in (pool.completed_tasks_client_uuids or {}).items():
            for client in clients:
                count[task] += 1
                if client == self.client_uuid:
                    own.add(task)  # as in AgentJet's clients, the rest does not count
                    break
                foreign.add(task)
        for episode in (pool.running_episode_details or {}).values():
            task = episode.optional_task_id or ""
            count[task] += 1
            if episode.client_uuid != self.client_uuid:
                foreign.add(task)
            elif task:
                own.add(task)
        return own, foreign, count
