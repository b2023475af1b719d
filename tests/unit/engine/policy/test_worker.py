"""The worker thread: one answer that fails leaves the others alone."""

import asyncio

from engine.interface import Completion, Prompt, SamplingParams
from engine.policy.answer import AnswerFailedError, Request, SampledAnswer
from engine.policy.worker import PolicyWorker


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
    assert [getattr(one, "step", None) for one in results] == [7, None, 7]
    assert isinstance(results[1], AnswerFailedError)
    assert str(results[1]) == "no memory. Buy some."
    worker.begin_closing()
    await worker.join()
