"""Operations of clients on episodes: claim, end, abort (protocol section 4). Calls:
`engine.llm.calls`."""

import logging
import math
import time
from typing import Any

from engine.server.episode_keys import make_key
from engine.server.lifecycle import ROLLING, Engine, EngineError, EngineStatus
from engine.server.pool import Episode, EpisodeType

_ADVICE = {
    EngineStatus.OFFLINE: "Sync a training config and start the engine first.",
    EngineStatus.BOOTING: "Engine is booting. Try again in a moment.",
    EngineStatus.ROLLING_POST: "Engine is in post-rolling phase. Try again in a moment.",
    EngineStatus.WEIGHT_SYNCING: "Engine is syncing weights. Try again in a moment.",
}


class EpisodeService:
    """The episode operations of one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def claim(self, client: str, kind: EpisodeType, timeout: float, task_id: str) -> Episode | str:
        """Claim an episode; return the reason, with the text that clients match, when none is free.

        Args:
            client: The client's uuid.
            kind: Train or eval.
            timeout: Seconds without a call after which the engine reclaims the episode.
            task_id: Task of the throttle policy; empty without one.
        """
        engine = self.engine
        if engine.status is not EngineStatus.ROLLING:
            return f"Engine not ready. Current status: [{engine.status}]. {_ADVICE[engine.status]}"
        episode = engine.pool.claim(client, kind, timeout, task_id)
        if episode is None:
            return "No available episodes to claim. Try again in a moment."
        engine.clients.refresh(client)
        return episode

    def end(
        self,
        client: str,
        name: str,
        task_id: str,
        reward: object,
        metadata_task_id: object,
        *,
        declare: bool,
    ) -> None:
        """Record an episode's result.

        Raises:
            EngineError: the engine is not rolling, the episode is not this client's, or the result
                cannot be trained on; the episode is unchanged.
        """
        engine = self.engine
        if engine.status not in ROLLING:
            raise EngineError(
                400,
                f"Engine is not in rolling state. Current status: [{engine.status}]. "
                f"Episode {name} is dropped.",
            )
        if not task_id or metadata_task_id != task_id:
            raise EngineError(
                400,
                "workflow_output.metadata.task_id: must be there and equal to task_id "
                f"({task_id!r}), found {metadata_task_id!r:.200}",
                asserts=True,
            )
        episode = self._claimed_by(client, name)
        if episode.type == "eval":
            if reward is not None and not engine.faithful:
                check_reward(reward)
            engine.give_back(name)
        else:
            self._end_train(episode, task_id, reward)
            if declare:
                engine.clients.declare(client)
        engine.advance()

    def abort(self, client: str, name: str, *, declare: bool) -> None:
        """Return an episode unused. An unknown or unclaimed one is not an error.

        Raises:
            EngineError: 404, another client holds the episode.
        """
        engine = self.engine
        episode = engine.pool.find(name)
        if episode is None or episode.status != "claimed" or engine.status not in ROLLING:
            return
        if not engine.faithful:
            self._claimed_by(client, name)
        engine.give_back(name)
        if declare:
            engine.clients.declare(client)
        engine.advance()

    def can_continue(self, client: str, name: str) -> bool:
        """Return whether the engine would accept an end of this episode."""
        episode = self.engine.pool.find(name)
        return (
            self.engine.status in ROLLING
            and episode is not None
            and episode.status == "claimed"
            and (episode.client == client or self.engine.faithful)
        )

    def agree(self, client: str) -> str:
        """Record that a client agrees to the sync; return why that had no effect, else an empty
        text.

        Raises:
            EngineError: 400, the running job's stop rule does not use agreement.
        """
        engine = self.engine
        method = engine.counters().get("sample_collection_method", "")
        if not method.endswith("agree_sync_weight"):
            raise EngineError(
                400,
                f"The sample collection method {method!r} does not use agreement",
                asserts=True,
            )
        if not engine.clients.agree(client):
            return f"Client {client} is not active: it has ended no episode since the last sync"
        engine.advance()
        return ""

    def episode_status(self, episode: Episode) -> dict[str, Any]:
        """Return an episode in the form of the wire."""
        idle = self.engine.clock() - episode.active_at
        return {
            "episode_uuid": episode.uuid,
            "episode_status": episode.status,
            "episode_type": episode.type,
            "openai_base_url": self.engine.base_url,
            "openai_api_key": make_key(episode.uuid, episode.address),
            "client_uuid": episode.client,
            "zmq_listen_result_addr": "",
            "latest_activity_timestamp": time.time() - idle,
            "discard_episode_timeout": episode.timeout,
            "llm_call_count": episode.call_count,
            "debug_log": [],
            "optional_task_id": episode.task_id,
        }

    def pool_information(self) -> dict[str, Any]:
        """Return the pool information (protocol section 6)."""
        engine = self.engine
        running = {
            episode.uuid: {
                "episode_status": episode.status,
                "time_since_last_activity": f"{self._idle(episode):.1f}s",
                "discard_episode_timeout": f"{episode.timeout:.1f}s",
                "llm_call_count": str(episode.call_count),
                "client_uuid": episode.client,
                "optional_task_id": episode.task_id,
            }
            for episode in engine.pool.claimed
        }
        clients = {
            name: [episode.client for episode in group if episode.throttled]
            for name, group in engine.pool.finished.items()
            if any(episode.throttled for episode in group)
        }
        return {
            **engine.counters(),
            "completed_tasks_client_uuids": clients,
            "running_episode_details": running or None,
            "engine_status": engine.status,
            "global_step": engine.global_step,
            "booting_start_time": engine.booting_since,
            "training_model_path": engine.policy_holder.info["policy"],
            "swarm_client_instruction": {"active_clients": engine.clients.as_json()},
        }

    def _end_train(self, episode: Episode, task_id: str, reward: object) -> None:
        """Count a train episode; refuse an invalid one, or drop it where the real server does."""
        engine = self.engine
        cause = ""
        try:
            number = check_reward(reward)
        except EngineError as error:
            if not engine.faithful:
                raise
            number, cause = 0.0, str(error)
        if not episode.completions:
            cause = "it was ended without an LLM call"
        if cause:
            engine.pool.drop(episode)
            engine.verbose.add(
                "pool",
                f"episode {episode.uuid} of task {task_id!r} is not counted: {cause}",
                logging.WARNING,
            )
            return
        engine.policy_holder.token_log.record(episode.uuid, episode.completions, task_id, number)
        engine.pool.finish(episode, task_id, number)

    def _claimed_by(self, client: str, name: str) -> Episode:
        """Return the episode that the client holds; raise EngineError otherwise."""
        episode = self.engine.pool.find(name)
        if episode is None:
            raise EngineError(400, f"Episode {name} not found.")
        if episode.status != "claimed":
            raise EngineError(
                400, f"Episode {name} is not in claimed status, it is {episode.status}."
            )
        if episode.client != client:
            raise EngineError(
                404, f"Episode {name} is claimed by different client {episode.client}."
            )
        return episode

    def _idle(self, episode: Episode) -> float:
        return 0.0 if episode.calls else self.engine.clock() - episode.active_at


def check_reward(reward: object) -> float:
    """Return the reward as a finite float.

    Raises:
        EngineError: 400, it is not one finite number.
    """
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        kind = "null" if reward is None else type(reward).__name__
        raise EngineError(400, f"workflow_output.reward: must be one number, found {kind}")
    try:
        number = float(reward)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EngineError(400, f"workflow_output.reward: must be finite, found {number}")
    return number
