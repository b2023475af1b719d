"""Answers of a snapshot: what the sampler asks the engine, and what becomes of a refusal."""

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.interface import Request, Response
from engine.llm.context_length import too_long
from proxy.context import ServerHandle
from proxy.evaluation.sampling import (
    SAMPLE,
    SNAPSHOT,
    SNAPSHOT_LIMIT,
    MeasurementCut,
    PromptTooLong,
    SnapshotSampler,
    open_sampler,
)
from proxy.servers.facts import ServerFacts

SEA = [{"role": "user", "content": "Write a story about the sea."}]


class Engine:
    """A transport that answers as an engine with snapshots.

    Attributes:
        refuses: Status and reason of each request for answers.
        requests: Requests for answers.
    """

    def __init__(self) -> None:
        self.refuses: tuple[int, str] | None = None
        self.requests: list[Request] = []

    async def request(self, request: Request) -> Response:
        """Answer."""
        path = urlsplit(request.url).path
        if path == SNAPSHOT:
            return answer(200, {"snapshot": "one", "step": 3})
        if path == SAMPLE:
            self.requests.append(request)
            if self.refuses is not None:
                return answer(self.refuses[0], {"detail": self.refuses[1]})
            count = json.loads(request.body or b"")["n"] + 1
            message = {"role": "assistant", "content": "Waves."}
            answers = [{"message": message, "finish_reason": "stop"}] * count
            return answer(200, {"step": 3, "answers": answers, "truncated": False})
        paths: dict[str, Any] = {one: {} for one in (SNAPSHOT, SAMPLE, "/ajetc/info")}
        return answer(200, {"paths": paths, "snapshots": True})


def answer(status: int, body: Any) -> Response:
    """A response of JSON."""
    return Response(status, {}, json.dumps(body).encode())


async def opened(engine: Engine) -> SnapshotSampler:
    """A sampler of the engine's present weights."""
    client = SwarmWire("http://engine", engine, "me", name="s")  # type: ignore[arg-type]
    watcher = Watcher(client)
    claimer = EpisodeClaimer(client, watcher)
    server = ServerHandle("s", client.url, client, watcher, claimer, set())
    sampler = await open_sampler(server, ServerFacts(server, Tasks("a test")), lambda: False)
    assert isinstance(sampler, SnapshotSampler)
    return sampler


async def test_the_answers_to_a_prompt_are_asked_for_together() -> None:
    engine = Engine()
    sampler = await opened(engine)
    samples, likeliest = await sampler.sample(SEA, 4)
    assert (sampler.step, len(samples)) == (3, 4)
    assert likeliest is not None
    assert likeliest.text == "Waves."
    (request,) = engine.requests
    body = json.loads(request.body or b"")
    assert (body["snapshot"], body["n"], body["likeliest"]) == ("one", 4, True)
    assert request.timeout == SNAPSHOT_LIMIT


async def test_a_prompt_over_the_window_is_left_out_and_other_refusals_end_the_look() -> None:
    engine = Engine()
    sampler = await opened(engine)
    refusal = too_long(128, 400, 96, named=False)
    engine.refuses = (refusal.status, str(refusal))
    with pytest.raises(PromptTooLong):
        await sampler.sample(SEA, 4)
    engine.refuses = (404, "There is no snapshot 'one'")
    with pytest.raises(MeasurementCut, match="There is no snapshot"):
        await sampler.sample(SEA, 4)
