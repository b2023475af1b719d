"""The worker of a policy, and its speed."""

import asyncio
import threading

import pytest

from engine.interface import Completion, PolicyClosedError, Prompt, SamplingParams
from engine.policy.answer import AnswerFailedError, Request, SampledAnswer
from engine.policy.speed import SamplingSpeed
from engine.policy.worker import PolicyWorker
from tests.support.engine.client import wait_for


class FailingSampler:
    """Fails the requests whose prompt is (0,), answers the others."""

    live = 0

    def __init__(self) -> None:
        self._requests: list[Request] = []

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._requests)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._requests.append(request)

    def clear(self) -> list[Request]:
        """Drop all requests."""
        dropped, self._requests = self._requests, []
        return dropped

    def take_pieces(self) -> list[tuple[Request, str]]:
        """No pieces."""
        return []

    def step(self, number: int, admit: bool = True) -> list[SampledAnswer]:
        """Answer the oldest request."""
        request = self._requests.pop(0)
        if request.prompt.tokens == (0,):
            raise AnswerFailedError(request, "no memory", todo="Buy some.")
        completion = Completion("x", request.prompt.tokens, (1,), (0.0,), "stop", step=number)
        return [SampledAnswer(request, completion)]


async def test_an_answer_that_fails_fails_alone() -> None:
    worker = PolicyWorker(FailingSampler(), lambda: 7)
    worker.start()
    prompts = [Prompt((token,)) for token in (1, 0, 2)]
    results = await asyncio.gather(
        *(worker.sample(prompt, SamplingParams()) for prompt in prompts), return_exceptions=True
    )
    assert [getattr(result, "step", None) for result in results] == [7, None, 7]
    assert isinstance(results[1], AnswerFailedError)
    assert str(results[1]) == "no memory. Buy some."
    assert worker.speed.tokens_per_second is not None
    assert worker.speed.tokens_per_second * worker.speed.seconds == pytest.approx(2)
    worker.begin_closing()
    await worker.join()


async def test_another_thread_runs_a_function_on_the_worker() -> None:
    worker = PolicyWorker(FailingSampler(), lambda: 7)
    worker.start()
    names = [threading.current_thread().name]

    def work() -> int:
        names.append(threading.current_thread().name)
        return 5

    def fail() -> None:
        raise MemoryError("no memory")

    assert await asyncio.to_thread(worker.call, work) == 5
    assert names[1] == "policy" != names[0]
    with pytest.raises(MemoryError, match="no memory"):
        await asyncio.to_thread(worker.call, fail)
    worker.begin_closing()
    await worker.join()
    with pytest.raises(PolicyClosedError):
        await asyncio.to_thread(worker.call, work)


async def test_closing_ends_a_call_of_another_thread() -> None:
    worker = PolicyWorker(FailingSampler(), lambda: 7)
    worker.start()
    busy, release = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        release.wait(60)

    async with asyncio.TaskGroup() as group:
        first = group.create_task(worker.run(hold, alone=False))
        await wait_for(busy.is_set)
        second = group.create_task(_ended(worker))
        await wait_for(lambda: len(worker._jobs) == 1)
        worker.begin_closing()
        release.set()
    assert first.result() is None
    assert isinstance(second.result(), PolicyClosedError)
    await worker.join()


async def _ended(worker: PolicyWorker) -> Exception | None:
    """The error of a call."""
    try:
        await asyncio.to_thread(worker.call, lambda: None)
    except PolicyClosedError as error:
        return error
    return None


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_speed_has_the_pauses_of_the_work_and_ends_some_time_after_it(clock: Clock) -> None:
    speed = SamplingSpeed(newest=256, lasts=10.0, clock=clock)
    assert speed.tokens_per_second is None
    speed.begin()
    assert speed.tokens_per_second is None
    for _ in range(4):
        clock.now += 0.2
        speed.note(10)
        clock.now += 0.1  # a user's answer came first
    assert speed.tokens_per_second == pytest.approx(40 / 1.1)
    clock.now += 30.0
    assert speed.tokens_per_second is not None  # a long step of a slow model
    speed.end()
    assert speed.tokens_per_second is None
    speed.begin()
    assert speed.tokens_per_second is None
    clock.now += 1.0
    speed.note(5)
    speed.end()
    assert speed.tokens_per_second == pytest.approx(5.0)
    clock.now += 9.0
    speed.begin()
    clock.now += 1.0
    speed.note(15)
    assert speed.tokens_per_second == pytest.approx(10.0)  # without the pause


def test_a_speed_of_the_newest_steps_forgets_older_ones(clock: Clock) -> None:
    speed = SamplingSpeed(newest=2, clock=clock)
    for tokens in (100, 4, 6):
        speed.begin()
        clock.now += 1.0
        speed.note(tokens)
    assert speed.tokens_per_second == pytest.approx(5.0)
    assert speed.seconds == pytest.approx(2.0)


def test_a_speed_since_an_update_is_that_before_it_until_the_next_step(clock: Clock) -> None:
    speed = SamplingSpeed(clock=clock)
    for _ in range(300):
        speed.begin()
        clock.now += 0.5
        speed.note(4)
        clock.now += 7.0  # nobody asks
    assert speed.tokens_per_second == pytest.approx(8.0)
    assert speed.seconds == pytest.approx(150.0)
    speed.restart()
    assert (speed.tokens_per_second, speed.seconds) == (pytest.approx(8.0), 0.0)
    speed.restart()
    assert speed.tokens_per_second == pytest.approx(8.0)
    speed.begin()
    clock.now += 0.5
    speed.note(1)
    assert (speed.tokens_per_second, speed.seconds) == (pytest.approx(2.0), 0.5)
