"""Episode records and stop rules, without HTTP."""

import pytest

from engine.interface import Completion
from engine.server.batch_rules import build_train_batch, count_batch, is_full
from engine.server.job import ALL_AGREE, ANY_AGREES, ENOUGH_EPISODES, ENOUGH_NON_DUMMY, Job
from engine.server.pool import ActiveClients, Episode, Pool
from tests.support.engine.client import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Pool:
    return Pool(clock)


def answer(*tokens: int) -> Completion:
    return Completion(
        text="x",
        prompt_tokens=(9,),
        tokens=tokens,
        logprobs=tuple(-0.5 for _ in tokens),
        finish_reason="stop",
    )


def claim(pool: Pool, client: str = "c", timeout: float = 60, task: str = "") -> Episode:
    episode = pool.claim(client, "train", timeout, task)
    assert episode is not None
    return episode


def finish(pool: Pool, task: str, *rewards: float) -> None:
    for reward in rewards:
        pool.register()
        episode = claim(pool)
        episode.completions.append(answer(1))
        pool.finish(episode, task, reward)


def test_claims_are_first_in_first_out(pool: Pool) -> None:
    opened = [pool.register() for _ in range(3)]
    assert [claim(pool) for _ in range(3)] == opened
    assert pool.claim("c", "train", 60) is None
    assert len({episode.uuid for episode in opened}) == 3
    assert len({episode.address for episode in opened}) == 3


def test_a_reverted_episode_is_as_new_but_keeps_its_key(pool: Pool, clock: Clock) -> None:
    pool.register()
    episode = claim(pool, task="t")
    uuid, address = episode.uuid, episode.address
    episode.completions.append(answer(1))
    episode.call_count = 3
    episode.type = "eval"
    pool.revert(episode)
    assert pool.find(uuid) is episode
    assert (episode.status, episode.client, episode.timeout) == ("registered", "", -1.0)
    assert (episode.type, episode.task_id, episode.call_count) == ("train", "", 0)
    assert (episode.completions, episode.address, episode.turn) == ([], address, 1)
    assert claim(pool) is episode


def test_idle_counts_from_the_last_activity_of_claimed_episodes(pool: Pool, clock: Clock) -> None:
    pool.register()
    pool.register()
    short, long = claim(pool, timeout=10), claim(pool, timeout=100)
    pool.register()
    clock.now += 10
    assert pool.idle() == []
    clock.now += 0.1
    assert pool.idle() == [short]
    short.active_at = clock.now
    assert pool.idle() == []
    clock.now += 1000
    assert pool.idle() == [short, long]


def test_drop_unclaimed_leaves_the_claimed(pool: Pool) -> None:
    for _ in range(4):
        pool.register()
    held = claim(pool)
    assert pool.drop_unclaimed() == 3
    assert list(pool) == [held]
    assert pool.claim("c", "train", 60) is None


def test_take_empties(pool: Pool) -> None:
    finish(pool, "a", 1, 0)
    finish(pool, "b", 1)
    assert [episode.task_id for episode in pool.take()] == ["a", "a", "b"]
    assert pool.take() == []
    assert len(pool) == 0


def test_enough_tasks_counts_tasks_with_r_episodes(pool: Pool) -> None:
    job = Job(batch_size=2, num_repeat=2)
    finish(pool, "a", 1, 1, 1, 1)
    finish(pool, "b", 1)
    assert not is_full(job, count_batch(pool, job), [])
    finish(pool, "b", 1)
    assert is_full(job, count_batch(pool, job), [])


def test_enough_episodes(pool: Pool) -> None:
    job = Job(batch_size=2, num_repeat=2, method=ENOUGH_EPISODES)
    finish(pool, "a", 1, 1, 1)
    assert not is_full(job, count_batch(pool, job), [])
    finish(pool, "b", 1)
    assert is_full(job, count_batch(pool, job), [])


def test_non_dummy_tasks_count_and_dummies_are_not_trained(pool: Pool) -> None:
    job = Job(batch_size=2, num_repeat=2, method=ENOUGH_NON_DUMMY)
    finish(pool, "dummy", 1, 1)
    finish(pool, "a", 1, 0)
    finish(pool, "short", 1)
    assert not is_full(job, count_batch(pool, job), [])
    finish(pool, "b", 0.2, 0.3)
    assert is_full(job, count_batch(pool, job), [])
    trained = [sample.task_id for sample in build_train_batch(pool.take(), job).samples]
    assert trained == ["a", "a", "short", "b", "b"]


@pytest.mark.parametrize(
    ("votes", "any_agrees", "all_agree"),
    [
        ([], False, False),
        ([False], False, False),
        ([True, False], True, False),
        ([True], True, True),
    ],
)
def test_agreement(pool: Pool, votes: list[bool], any_agrees: bool, all_agree: bool) -> None:
    either, every = Job(method=ANY_AGREES), Job(method=ALL_AGREE)
    assert not is_full(either, count_batch(pool, either), [True]), "nothing to train on"
    assert not is_full(every, count_batch(pool, every), [True]), "nothing to train on"
    finish(pool, "a", 1)
    assert is_full(either, count_batch(pool, either), votes) is any_agrees
    assert is_full(every, count_batch(pool, every), votes) is all_agree


def test_every_call_of_an_episode_is_a_sample_with_its_reward(pool: Pool) -> None:
    pool.register()
    episode = claim(pool)
    episode.completions = [answer(1, 2), answer(3), answer()]
    pool.finish(episode, "t", 0.5)
    samples = build_train_batch(pool.take(), Job()).samples
    assert [(sample.tokens, sample.reward, sample.task_id) for sample in samples] == [
        ((1, 2), 0.5, "t"),
        ((3,), 0.5, "t"),
    ]


def test_active_clients(clock: Clock) -> None:
    clients = ActiveClients(clock, lambda: 7.0)
    clients.refresh("a")
    assert clients.votes == []
    assert not clients.agree("a")
    clients.declare("a")
    clients.declare("b")
    assert clients.agree("a")
    clients.declare("a")
    assert clients.votes == [True, False]
    clock.now += 599
    clients.refresh("b")
    clock.now += 2
    clients.expire()
    assert clients.as_json() == [
        {"client_uuid": "b", "last_activity_at": 7.0, "allowed_sync_weight": False}
    ]
    clients.clear()
    assert clients.as_json() == []
