"""One episode on several servers: claimed on all or on none, ended or given back on all."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from swarm.answers import EndKind, EndOutcome
from swarm.episode import Episode, as_output, wire_output
from swarm.errors import EpisodeLost, GaveUp, SwarmError
from swarm.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput

PATIENCE = 0.5
"""Seconds one server's free episode is waited for while another's is held already: its batch
waits for that one."""
AGAIN = (0.05, 0.4)
"""Seconds before the next try, drawn anew each time: two clients must not take turns for ever."""


class JointPart(Protocol):
    """What is used of a server's client: a `SwarmClient` is one."""

    def begin_episode(
        self,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> tuple[str, OpenaiBaseUrlAndApiKey]: ...

    def end_episode(
        self, task: Task | str, episode_uuid: str, workflow_output: WorkflowOutput
    ) -> EndOutcome: ...

    def abort_episode(self, episode_uuid: str) -> bool: ...

    def can_continue_episode(self, episode_uuid: str) -> bool: ...

    def wait_until_rolling(self, *, timeout: float | None = None) -> int: ...


class JointEpisode:
    """Episodes of several servers that are ours; `joint["planner"].base_url` is one's address."""

    def __init__(
        self, clients: Mapping[str, JointPart], task: Task | str, parts: Mapping[str, Episode]
    ) -> None:
        self._clients = clients
        self.task = task
        self.parts = parts
        self.over = False
        """It was ended or given back."""

    def __getitem__(self, name: str) -> Episode:
        return self.parts[name]

    def end(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, EndOutcome]:
        """End it on all servers, each with its own reward.

        All are asked first whether they still hold it: a server that does not, or does not answer,
        means that it is given back on all. Past that question only a failure between it and the
        end itself can leave the servers with unlike counts; the error then names them.

        Args:
            outputs: For each server's name its output, or just the reward.

        Raises:
            SwarmError: a reward is missing or cannot be sent; it was given back on all.
            EpisodeLost: a server has it no more; says on which it counts.
        """
        try:
            given = self._checked(outputs)
            held = self._each(self._asked)
            lost = sorted(name for name, found in held.items() if found is not True)
            if lost:
                raise EpisodeLost(
                    EndKind.NOT_CLAIMED.value,
                    f"{', '.join(lost)} has it no more; it was given back on all servers",
                    str(self),
                )
        except BaseException:
            self.abort()
            raise
        self.over = True
        ends = self._each(lambda name: self.parts[name].end(given[name]))
        outcomes = {n: found for n, found in ends.items() if isinstance(found, EndOutcome)}
        failed = {n: _why(found) for n, found in ends.items() if not _counts(found)}
        if failed:
            counts = sorted(set(self.parts) - set(failed)) or ["none"]
            raise EpisodeLost(
                EndKind.ERROR.value,
                f"{'; '.join(f'{n}: {why}' for n, why in failed.items())} (it counts on "
                f"{', '.join(counts)})",
                str(self),
            )
        return outcomes

    def abort(self) -> None:
        """Give it back on all servers; does nothing when it is over."""
        if not self.over:
            self.over = True
            _give_back(self._clients, {name: one.uuid for name, one in self.parts.items()})

    def __str__(self) -> str:
        return "episode " + ", ".join(f"{n} {one.uuid}" for n, one in self.parts.items())

    def _checked(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, WorkflowOutput]:
        if set(outputs) != set(self.parts):
            raise SwarmError(
                f"rewards for {', '.join(sorted(outputs)) or 'nobody'}",
                str(self),
                f"Give one for each of {', '.join(sorted(self.parts))}",
            )
        given = {name: as_output(one) for name, one in outputs.items()}
        for name, output in given.items():
            wire_output(self.task, self.parts[name].uuid, output)
        return given

    def _asked(self, name: str) -> bool:
        return self._clients[name].can_continue_episode(self.parts[name].uuid)

    def _each(self, do: Callable[[str], Any]) -> dict[str, Any]:
        """What `do` gives for each server, all at once; an error is what it gave."""

        def guarded(name: str) -> Any:
            try:
                return do(name)
            except SwarmError as error:
                return error

        with ThreadPoolExecutor(len(self.parts), thread_name_prefix="joint") as threads:
            return dict(zip(self.parts, threads.map(guarded, self.parts), strict=True))


class JointSwarm:
    """Several servers whose episodes go together, as of a planner and an executor.

    Any number of threads may use it.

    Args:
        clients: Name to client. Claims go in this order.
        patience: Seconds to hold some while another server has none free.
    """

    def __init__(self, clients: Mapping[str, JointPart], *, patience: float = PATIENCE) -> None:
        if not clients:
            raise SwarmError("no server", "JointSwarm", "Give at least one client")
        self.clients = dict(clients)
        self.patience = patience

    @contextmanager
    def episode(
        self,
        task: Task | str,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> Iterator[JointEpisode]:
        """An episode of all servers for as long as the context lasts; left without an end, or by an
        exception, it is given back on all.

        Args: as of `SwarmClient.begin_episode`, for each server.

        Raises:
            GaveUp: they were not free together in `timeout` seconds; nothing is held.
        """
        parts = self._claim(task, discard_episode_timeout, episode_type, timeout, lifetime)
        joint = JointEpisode(self.clients, task, parts)
        try:
            yield joint
        finally:
            joint.abort()

    def _claim(
        self,
        task: Task | str,
        idle: float,
        kind: str,
        timeout: float | None,
        lifetime: float | None,
    ) -> dict[str, Episode]:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            for client in self.clients.values():  # while nothing is held
                client.wait_until_rolling(timeout=_left(until))
            held: dict[str, Episode] = {}
            try:
                for name, client in self.clients.items():
                    wait = _least(self.patience, _left(until)) if held else _left(until)
                    uuid, api = client.begin_episode(idle, kind, timeout=wait, lifetime=lifetime)
                    held[name] = Episode(client, task, uuid, api)
                return held
            except GaveUp:
                self._give_back(held)
                if not held or (until is not None and time.monotonic() >= until):
                    raise
            except BaseException:
                self._give_back(held)
                raise
            time.sleep(random.uniform(*AGAIN))

    def _give_back(self, held: Mapping[str, Episode]) -> None:
        _give_back(self.clients, {name: one.uuid for name, one in held.items()})


def _give_back(clients: Mapping[str, JointPart], held: Mapping[str, str]) -> None:
    """Give all back; one that fails does not keep the others."""
    failed: BaseException | None = None
    for name, uuid in held.items():
        try:
            clients[name].abort_episode(uuid)
        except BaseException as error:  # noqa: BLE001  raised below, when all had their turn
            failed = failed or error
    if failed is not None and not isinstance(failed, SwarmError):
        raise failed


def _counts(found: object) -> bool:
    return isinstance(found, EndOutcome) and found.ended


def _why(found: object) -> str:
    return f"{found.kind.value} {found.text}" if isinstance(found, EndOutcome) else str(found)


def _left(until: float | None) -> float | None:
    """Seconds left, a little at least: 0 would be wrong use."""
    return None if until is None else max(0.001, until - time.monotonic())


def _least(seconds: float, other: float | None) -> float:
    return seconds if other is None else min(seconds, other)
