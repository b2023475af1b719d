"""The engine against a model of it: both agree for all orders of the clients' requests."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.engine.client import driving, wait_for

BATCH, REPEAT = 2, 2
CLIENTS = ("c1", "c2", "c3")
TASKS = ("t1", "t2", "t3")
METHODS = ("tasks", "episodes", "non_dummy", "any", "all")
NEW = "a new one"

clients = st.sampled_from(CLIENTS)
rewards = st.sampled_from((0.0, 0.5, 1.0))
timeouts = st.sampled_from((10.0, 60.0))


@dataclass
class Record:
    """A claimed episode in the model."""

    owner: str
    kind: str
    timeout: float
    idle: float = 0.0
    calls: int = 0


@dataclass
class Model:
    """The protocol's sections 4 and 7 in a few lines."""

    method: str
    status: str = "OFFLINE"
    step: int | None = None
    queue: list[str] = field(default_factory=list)
    """Unclaimed slots, oldest first; `NEW` for one whose name is not known yet."""
    claimed: dict[str, Record] = field(default_factory=dict)
    finished: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    active: dict[str, bool] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """Names in the order of their first claims: the same in every run of an example."""
    trained: list[list[tuple[str, str, float]]] = field(default_factory=list)
    updates: int = 0

    def wipe(self) -> None:
        self.queue, self.claimed, self.finished, self.active = [], {}, {}, {}

    def roll(self) -> None:
        self.wipe()
        self.status, self.step = "ROLLING", self.updates + 1
        self.advance()

    def full(self) -> bool:
        groups = [group for group in self.finished.values() if len(group) >= REPEAT]
        lively = [group for group in groups if len({reward for _, reward in group}) > 1]
        some = any(self.finished.values())
        votes = list(self.active.values())
        return {
            "episodes": sum(map(len, self.finished.values())) >= BATCH * REPEAT,
            "tasks": len(groups) >= BATCH,
            "non_dummy": len(lively) >= BATCH,
            "any": some and any(votes),
            "all": some and bool(votes) and all(votes),
        }[self.method]

    def advance(self) -> None:
        if self.status == "ROLLING" and self.full():
            self.status, self.queue = "ROLLING_POST", []
        if self.status == "ROLLING_POST" and not self.claimed:
            batch = []
            for task, group in self.finished.items():
                dead = len({reward for _, reward in group}) == 1
                if self.method == "non_dummy" and dead and len(group) >= REPEAT:
                    continue
                batch += [(name, task, reward) for name, reward in group]
            self.trained.append(batch)
            self.wipe()
            self.status = "WEIGHT_SYNCING"
        if self.status == "ROLLING":
            missing = BATCH * REPEAT - len(self.queue) - len(self.claimed)
            self.queue += [NEW] * missing

    def give_back(self, name: str) -> None:
        del self.claimed[name]
        if self.status == "ROLLING":
            self.queue.append(name)


class Machine(RuleBasedStateMachine):
    """Does the same to both and compares."""

    @initialize(method=st.sampled_from(METHODS), running=st.integers(0, 3))
    def open(self, method: str, running: int) -> None:
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.d = self.runner.run(self.stack.enter_async_context(driving()))
        self.model = Model(method)
        self.keys: dict[str, dict[str, Any]] = {}
        self.d.bench.train_gate = asyncio.Event()
        self.runner.run(self.d.sync(method, batch=BATCH, repeat=REPEAT))
        if running:
            self.start()
            self.play("c1", list(TASKS), (0.0, 1.0), held=False)

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        assert self.d.bench.train_gate is not None
        self.d.bench.train_gate.set()
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def episode(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.model.names or ["nobody"]))

    @rule()
    def start(self) -> None:
        answer = self.runner.run(self.d.post("/start_engine"))
        assert (answer.status_code == 200) is (self.model.status == "OFFLINE")
        if self.model.status == "OFFLINE":
            assert answer.json()["success"] is True
            self.model.roll()

    @precondition(lambda self: len(self.model.names) > 6)
    @rule()
    def stop(self) -> None:
        self.runner.run(self.d.post("/stop_engine"))
        if self.model.status == "WEIGHT_SYNCING":
            self.model.trained.pop()
        if self.model.status != "OFFLINE":
            self.model.status, self.model.step = "OFFLINE", 0
            self.model.wipe()

    @rule(client=clients, kind=st.sampled_from(("train", "train", "train", "eval")), wait=timeouts)
    def claim(self, client: str, kind: str, wait: float) -> None:
        answer = self.runner.run(self.d.claim(client, kind, wait))
        model = self.model
        assert answer["success"] is (model.status == "ROLLING" and bool(model.queue))
        if not answer["success"]:
            assert answer["fail_cause"]
            return
        name, expected = answer["episode_uuid"], model.queue.pop(0)
        if expected == NEW:
            assert name not in model.names
            model.names.append(name)
        assert expected in (NEW, name)
        model.claimed[name] = Record(client, kind, wait)
        self.keys[name] = answer

    @rule(data=st.data())
    def chat(self, data: st.DataObject) -> None:
        name = self.episode(data)
        if name not in self.keys:
            return
        answer = self.runner.run(self.d.chat(self.keys[name]))
        record = self.model.claimed.get(name)
        assert answer.status_code == (200 if record else 404), answer.text
        if record:
            record.calls += 1
            record.idle = 0.0

    @rule(data=st.data(), client=clients, mine=st.booleans(), reward=rewards)
    def end(self, data: st.DataObject, client: str, mine: bool, reward: float) -> None:
        name, task = self.episode(data), data.draw(st.sampled_from(TASKS))
        model = self.model
        record = model.claimed.get(name)
        client = record.owner if record and mine else client
        answer = self.runner.run(self.d.end({"episode_uuid": name}, task, reward, client))
        if record is None:
            assert answer.status_code == 400
            return
        if record.owner != client:
            assert answer.status_code == 404
            return
        assert answer.json()["success"] is True
        if record.kind == "eval":
            model.give_back(name)
        else:
            del model.claimed[name]
            if record.calls:
                model.finished.setdefault(task, []).append((name, reward))
            model.active.setdefault(client, False)
        model.advance()

    @rule(
        client=clients,
        tasks=st.permutations(TASKS),
        marks=st.tuples(rewards, rewards),
        held=st.booleans(),
    )
    def play(self, client: str, tasks: list[str], marks: tuple[float, float], held: bool) -> None:
        """Whole groups, so that batches are filled; held episodes may be given back before."""
        if not held:
            for name, record in list(self.model.claimed.items()):
                self.give_up(name, record.owner)
        for task, reward in ((task, reward) for task in tasks[:BATCH] for reward in marks):
            before = set(self.model.claimed)
            self.claim(client, "train", 60.0)
            for name in set(self.model.claimed) - before:
                assert self.runner.run(self.d.chat(self.keys[name])).status_code == 200
                ended = self.runner.run(self.d.end(self.keys[name], task, reward, client))
                assert ended.json()["success"] is True
                del self.model.claimed[name]
                self.model.finished.setdefault(task, []).append((name, reward))
                self.model.active.setdefault(client, False)
                self.model.advance()

    @rule(data=st.data(), client=clients)
    def abort(self, data: st.DataObject, client: str) -> None:
        self.give_up(self.episode(data), client)

    def give_up(self, name: str, client: str) -> None:
        record = self.model.claimed.get(name)
        answer = self.runner.run(self.d.abort({"episode_uuid": name}, client))
        if record is not None and record.owner != client:
            assert answer.status_code == 404
            return
        assert answer.json()["success"] is True
        if record is not None:
            self.model.give_back(name)
            self.model.active.setdefault(client, False)
            self.model.advance()

    @rule(client=clients)
    def agree(self, client: str) -> None:
        answer = self.runner.run(self.d.post("/agree_sync_weight", client_uuid=client))
        if self.model.method not in ("any", "all") or self.model.step is None:
            assert answer.status_code == 400
            return
        assert answer.json()["success"] is (client in self.model.active)
        if client in self.model.active:
            self.model.active[client] = True
            self.model.advance()

    @rule(seconds=st.sampled_from((1.0, 15.0)))
    def wait(self, seconds: float) -> None:
        async def sweep() -> None:
            self.d.engine.sweep()

        self.d.clock.now += seconds
        self.runner.run(sweep())
        for record in self.model.claimed.values():
            record.idle += seconds
        for name in self.model.names:  # those of one sweep go back in the order they were opened
            held = self.model.claimed.get(name)
            if held is not None and held.idle > held.timeout:
                self.model.give_back(name)
        self.model.advance()

    @precondition(lambda self: self.model.status == "WEIGHT_SYNCING")
    @rule()
    def trained(self) -> None:
        gate = self.d.bench.train_gate
        assert gate is not None

        async def let_it() -> None:
            gate.set()
            await wait_for(lambda: self.d.engine.status != "ENGINE.WEIGHT_SYNCING")
            gate.clear()

        self.runner.run(let_it())
        self.model.updates += bool(self.model.trained[-1])
        if not self.model.trained[-1]:
            self.model.trained.pop()
        self.model.roll()

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "model"):
            return
        model, d = self.model, self.d
        assert self.runner.run(d.status()) == (model.status, model.step)
        buffer = self.runner.run(d.post("/get_episode_buffer")).json()["buffer"]
        held = {
            record["episode_uuid"]: (
                record["client_uuid"],
                record["episode_type"],
                record["llm_call_count"],
            )
            for record in buffer
            if record["episode_status"] == "claimed"
        }
        assert held == {
            name: (record.owner, record.kind, record.calls)
            for name, record in model.claimed.items()
        }
        assert len(buffer) == len(model.claimed) + len(model.queue)
        trained = [
            {(sample.episode, sample.task_id, sample.reward) for sample in batch}
            for batch in d.bench.trained
        ]
        whole = model.trained[:-1] if model.status == "WEIGHT_SYNCING" else model.trained
        assert trained == [set(batch) for batch in whole]
        if model.status in ("ROLLING", "ROLLING_POST"):
            pool = self.runner.run(d.pool())
            assert pool["completed_tasks_details"] == {
                task: [name for name, _ in group] for task, group in model.finished.items()
            }
            assert pool["completed_tasks_rewards"] == {
                task: [reward for _, reward in group] for task, group in model.finished.items()
            }
            active = pool["swarm_client_instruction"]["active_clients"]
            assert {
                active_binding["client_uuid"]: active_binding["allowed_sync_weight"]
                for active_binding in active
            } == model.active


class LongMachine(Machine):
    """The same for longer."""


def _examples(count: int) -> settings:
    return settings(
        max_examples=count,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


Machine.TestCase.settings = _examples(8)
TestTheEngineAgainstItsModel = pytest.mark.slow(Machine.TestCase)
LongMachine.TestCase.settings = _examples(100)
TestTheEngineAgainstItsModelAtLength = pytest.mark.soak(LongMachine.TestCase)
