"""The state of a scripted swarm server: engine, episode records, batch. No sockets here."""

import asyncio
import base64
import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Denied(Exception):
    """Becomes `HTTPException(status, detail)`."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Crash(Exception):
    """Becomes a 500 in plain text and a dropped connection, as an assertion does."""


@dataclass
class Episode:
    """One record, as section 4.2 of the protocol lists it."""

    uuid: str
    key: str
    status: str = "registered"
    type: str = "train"
    client: str = ""
    active: float = 0.0
    timeout: float = -1.0
    calls: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def claimed(self) -> bool:
        return self.status == "claimed"


class ScriptedPool:
    """Engine state machine and episode records with the real server's rules.

    In automatic mode: ROLLING until the stop rule holds after a train end, then ROLLING_POST until
    no episode is claimed, then WEIGHT_SYNCING for `sync_seconds` (or until `finish_sync()` when
    None), then ROLLING with the next step and fresh episodes.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        new_uuid: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.clock, self.new_uuid = clock, new_uuid
        self.state = "OFFLINE"
        self.detail: str | None = None
        self.step: int | None = None
        self.batch = 4
        self.repeat = 4
        self.slots: int | None = None
        self.automatic = True
        self.sync_seconds: float | None = 0.05
        self.method = "rollout_until_finish_enough_tasks"
        self.model = "scripted"
        self.port = 0
        self.episodes: dict[str, Episode] = {}
        self.unclaimed: list[str] = []
        self.finished: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
        self.agreed: set[str] = set()
        self.active_clients: dict[str, float] = {}
        self.config: str | None = None

        self.claims: list[str] = []
        self.refusals: list[str] = []
        self.ends: list[dict[str, Any]] = []
        self.aborts: list[dict[str, Any]] = []
        self.rewards: dict[str, float] = {}
        self.reward_log: list[tuple[str, str, float]] = []
        self.ended: Counter[str] = Counter()
        self.repeated: list[str] = []
        self.lost: list[str] = []
        self.batches: list[dict[str, list[float]]] = []
        self.most_claimed = 0
        self._later: asyncio.TimerHandle | None = None

    @property
    def duplicate_ends(self) -> int:
        """Ends of episodes that were ended before."""
        return len(self.repeated)

    # -- the engine -----------------------------------------------------------------------------

    @property
    def rolling(self) -> bool:
        return self.state in ("ROLLING", "ROLLING_POST")

    def claimed(self) -> list[Episode]:
        """Episodes claimed now."""
        return [episode for episode in self.episodes.values() if episode.claimed]

    def set_state(self, state: str, step: int | None = None) -> None:
        """Post a status, as a trainer does: no order is checked. `state` without its prefix."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self.rolling and state not in ("ROLLING", "ROLLING_POST"):
            self.lost.extend(episode.uuid for episode in self.claimed())
            self.episodes.clear()
            self.unclaimed.clear()
            self.active_clients.clear()
            self.agreed.clear()
        entered = state != self.state
        self.state = state
        if step is not None:
            self.step = step
        if entered and state == "ROLLING":
            self.finished.clear()
            self.register(self.slots if self.slots is not None else self.batch * self.repeat)
        if state == "ROLLING_POST":
            for name in self.unclaimed:
                self.episodes.pop(name, None)
            self.unclaimed.clear()
        if self.automatic and state == "ROLLING_POST":
            self._drained()
        elif self.automatic and state == "WEIGHT_SYNCING" and self.sync_seconds is not None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(self.sync_seconds, self.finish_sync)

    def finish_sync(self) -> None:
        """WEIGHT_SYNCING -> ROLLING with the next step."""
        self.set_state("ROLLING", (self.step or 0) + 1)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()

    def register(self, count: int = 1) -> None:
        """Offer `count` fresh episodes."""
        for _ in range(count):
            name = self.new_uuid()
            result = {
                "agent_name": "default_agent_name",
                "target_tag": "default_target_tag",
                "episode_uuid": name,
                "episode_address": f"ipc:///tmp/agentjet/{name}-llm.sock",
            }
            key = "sk-ajet-" + base64.b64encode(json.dumps(result).encode()).decode()
            self.episodes[name] = Episode(name, key, active=self.clock())
            self.unclaimed.append(name)

    def expire(self, name: str | None = None) -> list[str]:
        """The janitor's sweep: take back one named, or all that are idle too long."""
        now = self.clock()
        late = [
            episode
            for episode in self.claimed()
            if episode.uuid == name or (name is None and now - episode.active > episode.timeout)
        ]
        for episode in late:
            self._revert(episode)
        self._drained()
        return [episode.uuid for episode in late]

    # -- what clients ask -----------------------------------------------------------------------

    def claim(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["episode_type"] not in ("train", "eval"):
            raise Denied(400, f"Unknown episode_type: {body['episode_type']}")
        cause = ""
        if self.state != "ROLLING":
            advice = _ADVICE.get(self.state, "")
            cause = f"Engine not ready. Current status: [ENGINE.{self.state}]. {advice}"
        elif not self.unclaimed:
            cause = "No available episodes to claim. Try again (maybe 1 minute) later."
        if cause:
            self.refusals.append(cause)
            return self._claim_answer(body["client_uuid"], cause)
        episode = self.episodes[self.unclaimed.pop(0)]
        episode.status = "claimed"
        episode.type = body["episode_type"]
        episode.client = body["client_uuid"]
        episode.timeout = float(body["discard_episode_timeout"])
        episode.active = self.clock()
        episode.calls = 0
        self.claims.append(episode.uuid)
        self.most_claimed = max(self.most_claimed, len(self.claimed()))
        return self._claim_answer(body["client_uuid"], "", episode)

    def end(self, body: dict[str, Any]) -> dict[str, Any]:
        name, output = body["episode_uuid"], body["workflow_output"]
        if output["metadata"].get("task_id") != body["task_id"]:
            raise Crash
        if not self.rolling:
            raise Denied(
                400, f"Engine is not in rolling state. Current status: [ENGINE.{self.state}]."
            )
        episode = self.episodes.get(name)
        if episode is None:
            if self.ended[name]:
                self.repeated.append(name)
            raise Denied(400, f"Episode {name} not found.")
        if not episode.claimed:
            raise Denied(400, f"Episode {name} is not in claimed status.")
        if episode.client != body["client_uuid"]:
            raise Denied(404, f"Episode {name} is claimed by different client {episode.client}.")
        self.ends.append(body)
        self.ended[name] += 1
        if episode.type == "eval":
            self._revert(episode)
        else:
            if body.get("declare_client_active", True):
                self.active_clients[episode.client] = self.clock()
            self._finish(episode, body["task_id"], output["reward"])
        self._drained()
        return {"success": True}

    def abort(self, body: dict[str, Any]) -> dict[str, Any]:
        self.aborts.append(body)
        episode = self.episodes.get(body["episode_uuid"])
        if episode is not None:
            if body.get("declare_client_active", True):
                self.active_clients[body["client_uuid"]] = self.clock()
            if episode.claimed:
                self._revert(episode)
        self._drained()
        return {"success": True}

    def can_continue(self, body: dict[str, Any]) -> dict[str, Any]:
        episode = self.episodes.get(body["episode_uuid"])
        return {"can_continue": bool(self.rolling and episode and episode.claimed)}

    def agree(self, body: dict[str, Any]) -> dict[str, Any]:
        if not self.method.endswith("agree_sync_weight"):
            raise Crash
        if body["client_uuid"] not in self.active_clients:
            return {"success": False, "failure_reason": "The client is not active."}
        self.agreed.add(body["client_uuid"])
        self._check_enough()
        return {"success": True, "failure_reason": ""}

    def buffer(self) -> dict[str, Any]:
        return {
            "buffer": [
                {
                    "episode_uuid": e.uuid,
                    "episode_status": e.status,
                    "episode_type": e.type,
                    "openai_base_url": self._base_url(),
                    "openai_api_key": e.key,
                    "client_uuid": e.client,
                    "zmq_listen_result_addr": f"ipc:///tmp/agentjet/{e.uuid}-workflow.sock",
                    "latest_activity_timestamp": e.active,
                    "discard_episode_timeout": e.timeout,
                    "llm_call_count": e.calls,
                    "debug_log": [],
                    "optional_task_id": "",
                }
                for e in self.episodes.values()
            ]
        }

    def pool(self) -> dict[str, Any]:
        full = self._full_tasks()
        running = {
            e.uuid: {
                "episode_status": e.status,
                "time_since_last_activity": f"{self.clock() - e.active:.1f}s",
                "discard_episode_timeout": f"{e.timeout:.1f}s",
                "llm_call_count": str(e.calls),
                "client_uuid": e.client,
                "optional_task_id": "",
            }
            for e in self.claimed()
        }
        return {
            "sample_collection_method": self.method,
            "completed_episodes": sum(map(len, self.finished.values())),
            "completed_episode_target": self.batch * self.repeat,
            "completed_tasks": len(full),
            "completed_task_target": self.batch,
            "completed_non_dummy_tasks": len(self._alive(full)),
            "completed_non_dummy_task_target": self.batch,
            "task_expected_num_repeat": self.repeat,
            "completed_tasks_details": {
                task: [name for name, _ in done] for task, done in self.finished.items()
            },
            "completed_tasks_rewards": {
                task: [reward for _, reward in done] for task, done in self.finished.items()
            },
            "completed_tasks_client_uuids": {},
            "running_episode_details": running or None,
            "engine_status": f"ENGINE.{self.state}",
            "global_step": self.step,
            "booting_start_time": None,
            "training_model_path": self.model,
            "swarm_client_instruction": {
                "active_clients": [
                    {
                        "client_uuid": name,
                        "last_activity_at": at,
                        "allowed_sync_weight": name in self.agreed,
                    }
                    for name, at in self.active_clients.items()
                ]
            },
        }

    # -- inside ---------------------------------------------------------------------------------

    def _base_url(self) -> str:
        return f"http://localhost:{self.port}/v1"

    def _claim_answer(
        self, client: str, cause: str, episode: Episode | None = None
    ) -> dict[str, Any]:
        return {
            "success": episode is not None,
            "client_uuid": client,
            "episode_uuid": episode.uuid if episode else "",
            "openai_base_url": self._base_url() if episode else "",
            "openai_api_key": episode.key if episode else "",
            "fail_cause": cause,
        }

    def _finish(self, episode: Episode, task: str, reward: float) -> None:
        del self.episodes[episode.uuid]
        self.rewards[episode.uuid] = reward
        self.reward_log.append((episode.uuid, task, reward))
        if episode.calls and isinstance(reward, int | float):  # others are dropped in silence
            self.finished[task].append((episode.uuid, float(reward)))
        self._check_enough()
        if self.state == "ROLLING":
            self.register()

    def _check_enough(self) -> None:
        if self.automatic and self.state == "ROLLING" and self._enough():
            self.batches.append({t: [r for _, r in done] for t, done in self.finished.items()})
            self.set_state("ROLLING_POST")

    def _enough(self) -> bool:
        full = self._full_tasks()
        if self.method == "rollout_until_finish_enough_episodes":
            return sum(map(len, self.finished.values())) >= self.batch * self.repeat
        if self.method == "rollout_until_finish_enough_non_dummy_tasks":
            return len(self._alive(full)) >= self.batch
        if self.method == "rollout_until_any_client_agree_sync_weight":
            return bool(self.agreed)
        if self.method == "rollout_until_all_clients_agree_sync_weight":
            return bool(self.active_clients) and self.agreed >= set(self.active_clients)
        return len(full) >= self.batch

    def _full_tasks(self) -> list[str]:
        return [task for task, done in self.finished.items() if len(done) >= self.repeat]

    def _alive(self, tasks: list[str]) -> list[str]:
        return [task for task in tasks if len({reward for _, reward in self.finished[task]}) > 1]

    def _revert(self, episode: Episode) -> None:
        if self.state == "ROLLING_POST":
            self.episodes.pop(episode.uuid, None)
        else:
            episode.status, episode.client = "registered", ""
            episode.timeout, episode.calls = -1.0, 0
            self.unclaimed.append(episode.uuid)

    def _drained(self) -> None:
        if self.automatic and self.state == "ROLLING_POST" and not self.claimed():
            self.set_state("WEIGHT_SYNCING")


_ADVICE = {
    "OFFLINE": "Please start the engine first. Please use one of the client to run "
    "`client.sync_train_config() + client.start_engine()` to start the engine.",
    "BOOTING": "Please wait until the engine is fully booted. Try again (maybe 1 minute) later.",
    "WEIGHT_SYNCING": "Engine is syncing weights. Try again (maybe 1 minute) later.",
    "WEIGHT_EXPORTING": "Engine is exporting weights. Try again (maybe 1 minute) later.",
    "ROLLING_POST": "Engine is in post-rolling phase. Try again (maybe 1 minute) later.",
}
