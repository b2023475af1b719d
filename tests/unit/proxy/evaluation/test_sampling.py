"""How a look samples: snapshots, eval episodes, its size, its files."""

import asyncio
import gzip
import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.http.interface import Request, Response
from ajet_swarm.protocol.errors import ClaimTimedOut
from core.events import LookEnded, LookStarted
from engine.llm.context_length import too_long
from proxy.context import ServerHandle
from proxy.evaluation import sampling
from proxy.evaluation.measurement import FOLDER, MeasuredPrompt, Measurement, SampleArchive
from proxy.evaluation.sampling import (
    SAMPLE,
    SNAPSHOT,
    SNAPSHOT_LIMIT,
    EpisodeSampler,
    MeasurementCut,
    PromptTooLong,
    SampleSize,
    SnapshotSampler,
    eval_episode,
    open_sampler,
)
from proxy.evaluation.scoring import ScoredSample
from proxy.servers.facts import ServerFacts
from tests.support.proxy.measured import PROMPTS, Measured, Policy, ended, measured
from tests.support.proxy.world import World

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
        paths: dict[str, Any] = {path: {} for path in (SNAPSHOT, SAMPLE, "/ajetc/info")}
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
    return await open_sampler(server, ServerFacts(server, Tasks("a test")), lambda: False)


async def test_the_answers_to_a_prompt_are_asked_for_together() -> None:
    engine = Engine()
    sampler = await opened(engine)
    samples, likeliest = await sampler.sample(SEA, 4)
    assert (sampler.step, len(samples)) == (3, 4)
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


ABORT, CLAIM, CHAT = "/abort_episode", "/claim_episode", "/v1/chat/completions"


QUESTION: Sequence[dict[str, str]] = [{"role": "user", "content": "What is 1 + 1?"}]


def sampler_of(w: World) -> EpisodeSampler:
    return EpisodeSampler(w.server, w.groups.server_facts["s"], lambda: False)


async def occupy(w: World) -> str:
    """Take the only episode; return its uuid."""
    claimed = await w.server.client.claim("eval", 60.0)
    w.server.claimer.ends.holdings.granted(claimed)  # else the proxy gives it back
    return claimed.episode_uuid


@pytest.mark.parametrize("how", ["late", "stall"])
@pytest.mark.world(watched=True)
async def test_a_claim_granted_while_the_look_closes_is_given_back(w: World, how: str) -> None:
    w.swarm.fail_always(CLAIM, how)
    sampler = sampler_of(w)
    sampling_task = w.context.tasks.spawn(sampler.sample(QUESTION, 3), "look")
    await w.until(lambda: w.swarm.requests[CLAIM] == 3)
    sampling_task.cancel()
    closing = w.context.tasks.spawn(sampler.close(), "close")
    await closing
    w.swarm.release()
    await w.until(lambda: len(w.swarm.claims) == 3)
    await w.until(lambda: not w.swarm.claimed())
    await w.until(lambda: not w.server.claimer.ends.holdings.by_uuid)


async def test_a_proxy_that_stops_while_a_look_starts_leaves_no_episode(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        await ended(w, 1)
        w.swarm.fail_always(CLAIM, "late")
        service.demand("look")
        await w.until(lambda: len(w.kinds(LookStarted)) == 2 and w.swarm.claimed())
        asyncio.get_running_loop().call_later(0.05, w.swarm.release)  # `measured` closes before
    last = w.kinds(LookEnded)[-1]
    assert (last.outcome, last.cause) == ("cut", "the proxy stopped")
    assert not w.swarm.claimed()
    assert not w.server.claimer.ends.holdings.by_uuid


@pytest.mark.world(watched=True)
async def test_a_frozen_server_does_not_hold_up_the_end_and_gets_its_episode_back(w: World) -> None:
    w.swarm.fail_next(CLAIM, "late")
    sampler = sampler_of(w)
    sampling_task = w.context.tasks.spawn(sampler.sample(QUESTION, 1), "look")
    await w.until(lambda: w.swarm.claimed())
    sampling_task.cancel()
    await sampler.close()
    assert w.swarm.claimed(), "the server has not answered the claim"
    w.swarm.release()
    await w.until(lambda: not w.swarm.claimed())
    await w.until(lambda: not w.server.claimer.ends.holdings.by_uuid)


@pytest.mark.world(watched=True, slots=1)
@pytest.mark.leaves
async def test_a_look_without_a_free_episode_starves_nobody_and_ends(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "REFUSED_PAUSE", (0.0, 0.01))
    await occupy(w)
    facts, wake = w.groups.server_facts["s"], asyncio.Event()
    with facts.window(wake), pytest.raises(ClaimTimedOut):
        await sampler_of(w).sample(QUESTION, 1)
    w.swarm.requests[CLAIM] -= 1
    assert not wake.is_set(), "the window of an operator is closed for users only"
    assert not facts.contended
    assert w.swarm.requests[CLAIM] == sampling.REFUSALS


@pytest.mark.world(watched=True, slots=1)
async def test_an_episode_that_becomes_free_is_used(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "REFUSED_PAUSE", (0.0, 0.01))
    held = await occupy(w)
    sampler = sampler_of(w)
    taking = w.context.tasks.spawn(sampler.sample(QUESTION, 2), "look")
    await w.until(lambda: w.swarm.requests[CLAIM] >= 4)
    await w.server.client.abort(held)
    assert len(await taking) == 2
    await sampler.close()


@pytest.mark.world(watched=True)
@pytest.mark.leaves
async def test_an_episode_granted_to_a_group_meanwhile_is_not_given_back(w: World) -> None:
    w.swarm.fail_always(CHAT, "late")
    sampler = sampler_of(w)
    taking = w.context.tasks.spawn(sampler.sample(QUESTION, 1), "look")
    await w.until(lambda: w.swarm.requests[CHAT] == 1)
    (uuid,) = w.server.claimer.ends.holdings.by_uuid
    theirs = w.server.claimer.ends.holdings.add(Holding(uuid))
    taking.cancel()
    await sampler.close()
    assert not w.swarm.aborts
    assert w.server.claimer.ends.holdings.by_uuid == {uuid: theirs}


@pytest.mark.world(slots=1, watched=True)
async def test_an_episode_that_another_look_claims_before_the_return_is_answered_stays_its_own(
    w: World,
) -> None:
    first = AsyncExitStack()
    w.swarm.fail_next(ABORT, "late")
    before = await first.enter_async_context(eval_episode(w.server))
    closing = w.context.tasks.spawn(first.aclose(), "close")
    await w.until(lambda: w.swarm.aborts)
    async with eval_episode(w.server) as claimed:
        assert claimed.episode_uuid == before.episode_uuid
        w.swarm.release()
        await closing
        assert await w.server.claimer.ends.reconcile() == []
        assert w.swarm.claimed()
    assert len(w.swarm.aborts) == 2
    assert not w.server.claimer.ends.holdings.by_uuid


@pytest.mark.world(slots=1, watched=True)
async def test_an_episode_that_another_look_claimed_meanwhile_is_not_given_back(w: World) -> None:
    first = AsyncExitStack()
    before = await first.enter_async_context(eval_episode(w.server))
    w.swarm.expire(before.episode_uuid)
    async with eval_episode(w.server) as claimed:
        assert claimed.episode_uuid == before.episode_uuid
        await first.aclose()
        assert not w.swarm.aborts
    assert len(w.swarm.aborts) == 1
    assert not w.server.claimer.ends.holdings.by_uuid


@pytest.mark.world(watched=True)
async def test_nothing_is_claimed_after_the_end(w: World) -> None:
    sampler = sampler_of(w)
    await sampler.close()
    with pytest.raises(MeasurementCut):
        await sampler.sample(QUESTION, 1)
    assert not w.swarm.claims


@pytest.mark.parametrize(
    ("chosen", "looks", "words", "samples"),
    [
        (0, (200,), "200 of 512 answers were sampled", 0),
        (0, (200, 250), "sampled; the next look takes 3 answers for each prompt", 3),
        (0, (200, None, 200), "200 of 512 answers were sampled", 0),
        (0, (*(400, 400, 300, 300), 90, 100), "the next look takes 1 answer for each prompt", 1),
        (0, (16, 40), "use fewer prompts in `probe.file`: about 32 fit between syncs", 0),
        (4, (0, 0), ": none fits between syncs. Take a look while no user waits", 4),
        (8, (200, 200), "`probe.samples: 2` fits between syncs", 8),
    ],
)
def test_two_cut_looks_in_a_row_make_the_next_one_as_large_as_fits(
    chosen: int, looks: tuple[int | None, ...], words: str, samples: int
) -> None:
    """Each look is cut after so many answers, or complete; a number that is set never changes."""
    size, text = SampleSize(chosen), ""
    for answers in looks:
        if answers is None:
            size.complete()
        else:
            size.begin(64, size.samples or 8)
            size.done = answers
            text = size.cut()
    assert text.endswith(words)
    assert size.samples == samples


@pytest.mark.slow
@pytest.mark.world(samples=0)
async def test_looks_that_syncs_cut_are_followed_by_a_smaller_complete_one(m: Measured) -> None:
    for number in (1, 2):
        m.policy.calls = 0
        await m.until(lambda: m.policy.calls >= PROMPTS * 4, 30.0)
        m.swarm.set_state("WEIGHT_SYNCING")
        look = await ended(m, number)
        assert (look.outcome, look.verdict) == ("cut", None)
        assert f"of {PROMPTS * 8} answers were sampled" in look.cause
        m.service.demand("look")
        m.swarm.set_state("ROLLING", number + 1)
    assert "the next look takes" in look.cause
    third = await ended(m, 3)
    assert (third.outcome, third.role) == ("complete", "baseline"), third.cause
    (samples,) = {len(prompt.rewards) for prompt in third.prompts}
    assert f"the next look takes {samples} answer" in look.cause
    assert 1 <= samples <= 4


def stored(look_id: str) -> Measurement:
    sample = ScoredSample(text="Pa\u2028ris \U0001f600", reward=0.5, parts={"right": 0.5}, length=7)
    prompt = MeasuredPrompt(id="p1", prompt="Capital?", reference="Paris", samples=(sample,))
    return Measurement(
        look_id=look_id, server="s", step=3, at=1.0, reward="v", probe_set="w", prompts=(prompt,)
    )


def test_a_look_is_read_as_it_was_written(tmp_path: Path) -> None:
    archive = SampleArchive(tmp_path)
    file = archive.write(stored("a"))
    assert archive.read(file) == stored("a")
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["a.json.gz"]


def test_the_oldest_files_are_deleted_but_never_the_baseline(tmp_path: Path) -> None:
    archive = SampleArchive(tmp_path, most=3)
    baseline = archive.write(stored("base"))
    for number in range(6):
        file = archive.write(stored(f"l{number}"), baseline)
        os.utime(tmp_path / file, (number + 10, number + 10))
    os.utime(tmp_path / baseline, (1, 1))
    archive.write(stored("last"), baseline)
    names = {path.name.partition(".")[0] for path in (tmp_path / FOLDER).iterdir()}
    assert names == {"base", "l4", "l5", "last"}


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"{", mtime=0), gzip.compress(b"[]", mtime=0)],
    ids=["empty", "no gzip", "cut JSON", "a list"],
)
def test_a_damaged_file_is_no_baseline(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "damaged").write_bytes(data)
    assert SampleArchive(tmp_path).read("damaged") is None
    assert "cannot be read" in caplog.text
    assert SampleArchive(tmp_path).read("") is None


def test_a_folder_that_cannot_be_written_costs_the_file_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FOLDER).write_text("in the way")
    assert SampleArchive(tmp_path).write(stored("a")) == ""
    assert "are not stored" in caplog.text
