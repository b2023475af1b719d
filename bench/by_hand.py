"""Effect of 25 ratings by hand on the policy's answers, end to end.

    .venv/bin/python -m bench.by_hand

A user asks the fake vLLM in mode *hold*; the rating goes to the control API as the Rate screen
sends it, naming the best answer. A fixed preference replaces the rater, so that the run is
reproducible: the liveliest answer wins (most exclamation marks and warm words; of equal ones the
shorter). With the preset `hand` one group is one update. The questions of the transcript are not
among the rated ones; each is answered by one untrained candidate at temperature 0.
"""

import asyncio
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import httpx

from bench.bars import Verdicts
from bench.learning.tasks import Question, facts, liveliness
from core.state import Group
from proxy.control.client import ControlClient
from tests.support.stack import Stack, until

RATINGS = 25
SHOWN = 8
"""Number of questions in the transcript."""
LIMIT = 30.0


async def main() -> None:
    """Ask the held-out questions, rate, and ask them again."""
    verdicts = Verdicts()
    prompts = facts()
    held = list(prompts.evaluation)
    with (
        tempfile.TemporaryDirectory() as folder,
        Stack(Path(folder) / "home", forks=False) as stack,
    ):
        engine = stack.engine().url
        proxy = stack.proxy("--swarm-url", f"embedded={engine}")
        token = stack.home.token()
        async with (
            httpx.AsyncClient(base_url=proxy.url, timeout=LIMIT) as user,
            ControlClient(proxy.url, token) as control,
        ):
            await control.command("rating.mode", {"mode": "hold"})
            await control.command("engine.start", {"preset": "hand"})
            until("the engine rolls", lambda: user_is_served(proxy.url), LIMIT)
            before = [await ask(user, question, train=False) for question in held]
            training = random.Random(7).sample(list(prompts.training), RATINGS * 4)
            rated = 0
            for question in training:
                if rated == RATINGS:
                    break
                rated += await rate(user, control, question)
            after = [await ask(user, question, train=False) for question in held]
            step = (await control.snapshot()).servers["embedded"].step or 0
    print(f"\n{rated} groups rated by hand, global step {step}\n")
    for question, first, second in list(zip(held, before, after, strict=True))[:SHOWN]:
        print(f"> {question.text}\n  before: {first}\n  after:  {second}\n")
    gain = statistics.mean(map(liveliness, after)) - statistics.mean(map(liveliness, before))
    changed = sum(one != two for one, two in zip(before, after, strict=True))
    pairs = zip(held, after, strict=True)
    right = sum(any(core in text for core in one.cores) for one, text in pairs)
    verdicts.at_least("ratings_sent", rated, RATINGS, "groups")
    verdicts.at_least("greedy_answers_changed", changed / len(held), 0.3, "of all")
    verdicts.at_least("liveliness_gain", gain, 0.15, "of 1")
    verdicts.at_least("facts_still_right", right / len(held), 0.85, "of all")
    verdicts.close()


def user_is_served(url: str) -> bool:
    """Return whether a request would be answered now."""
    return httpx.get(url + "/health").status_code == 200


async def ask(user: httpx.AsyncClient, question: Question, *, train: bool) -> str:
    """Send one question; return the answer's text."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": question.text}]}
    if not train:
        body["temperature"] = 0
    answer = await user.post(
        "/v1/chat/completions",
        json=body,
        headers={"X-Ajet-Train": "yes" if train else "no", "X-Request-Id": question.text[:60]},
    )
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


async def rate(user: httpx.AsyncClient, control: ControlClient, question: Question) -> bool:
    """Send a question, and rate its best candidate while the user waits.

    Returns:
        False when all candidates are equal; the group is skipped.
    """
    step = (await control.snapshot()).servers["embedded"].step or 0
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        tasks.create_task(ask(user, question, train=True))
        group = await waiting(control)
        texts = [candidate.text for candidate in group.candidates]
        preference = [(liveliness(text), -len(text)) for text in texts]
        equal = len(set(texts)) == 1 or len({points for points, _ in preference}) == 1
        args = {"group_id": group.group_id, "rater": "bench"}
        if equal:
            await control.command("group.rate", {**args, "rating": "skip"})
        else:
            best = group.candidates[preference.index(max(preference))].index
            await control.command("group.rate", {**args, "rating": "best", "order": [best]})
            await control.command("group.accept", {"group_id": group.group_id})
    if equal:
        return False
    async with asyncio.timeout(LIMIT):
        while ((await control.snapshot()).servers["embedded"].step or 0) <= step:
            await asyncio.sleep(0.02)
    return True


async def waiting(control: ControlClient) -> Group:
    """Wait for a group that awaits a rating, and return it."""
    while True:
        for group in (await control.snapshot()).groups.values():
            if group.phase == "AWAITING_RATING" and group.rating is None:
                return group
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main())
