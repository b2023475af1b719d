"""A swarm client that polls as AgentJet's does (section 8 of the protocol): plain HTTP and sleeps.

It is what `bench.boundary` compares with: the periods are AgentJet's, the rest is the least that
claims and ends.
"""

import http.client
import json
import threading
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

STATUS_WAIT = 5.0
"""Seconds between two polls while it waits for ROLLING."""
NONE_FREE = 2.0
"""Seconds to wait after a claim without a free episode."""
REFUSED = 15.0
"""Seconds to wait after any other refusal."""
POLL = 0.33
"""Seconds between two background polls of the status."""


class PollingClient:
    """Client for claims and ends; thread-safe."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._me = str(uuid.uuid4())
        self._local = threading.local()
        self._state = ""
        self._end = threading.Event()
        self._read()
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        link = getattr(self._local, "link", None)
        if link is None:
            link = self._local.link = http.client.HTTPConnection(*self._address, timeout=30)
        data = None if body is None else json.dumps(body)
        link.request(method, path, data, {"Content-Type": "application/json"})
        return json.loads(link.getresponse().read())

    def _read(self) -> None:
        self._state = self._ask("GET", "/get_engine_status")["engine_status"]

    def _poll(self) -> None:
        while not self._end.wait(POLL):
            self._read()
        self._local.link.close()

    def begin_episode(self) -> str:
        """Claim an episode and return its uuid."""
        pause = 0.0
        while not self._end.is_set():
            time.sleep(pause)
            while self._state != "ENGINE.ROLLING":
                time.sleep(STATUS_WAIT)
            response = self._ask(
                "POST",
                "/claim_episode",
                {
                    "client_uuid": self._me,
                    "episode_type": "train",
                    "discard_episode_timeout": 240,
                    "throttle_policy": None,
                },
            )
            if response["success"]:
                return str(response["episode_uuid"])
            pause = NONE_FREE if "No available" in response["fail_cause"] else REFUSED
        raise RuntimeError("closed")

    def end_episode(self, task_id: str, episode_uuid: str, reward: float) -> None:
        """End an episode with its reward."""
        self._ask(
            "POST",
            "/end_episode",
            {
                "client_uuid": self._me,
                "episode_uuid": episode_uuid,
                "task_id": task_id,
                "workflow_output": {"reward": reward, "metadata": {"task_id": task_id}},
            },
        )

    def close_thread(self) -> None:
        """Close the calling thread's connection."""
        link = getattr(self._local, "link", None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Stop polling."""
        self._end.set()
        self._poller.join(10)
