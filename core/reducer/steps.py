"""Figures by global step, kept as groups are sealed."""

from core.scoring.agreement import top
from core.state import STEP_CAP, Group, Server
from core.state.steps import StepStats


def step_stats(server: Server, step: int, at: float) -> StepStats:
    """The record of `step`, made in its place when it is new."""
    place = len(server.steps)
    while place and server.steps[place - 1].step >= step:
        place -= 1
        if server.steps[place].step == step:
            return server.steps[place]
    stats = StepStats(step=step, began_at=at, engine_run=server.engine_run)
    server.steps.insert(place, stats)
    del server.steps[:-STEP_CAP]
    return stats


def begin_step(server: Server, step: int, at: float) -> None:
    """Note that the engine collects samples for `step`.

    Steps of earlier engine runs from `step` on are dropped: their weights, or the samples of a
    batch that was not trained, are gone.
    """
    server.steps = [
        one for one in server.steps if one.step < step or one.engine_run == server.engine_run
    ]
    step_stats(server, step, at)


def automatic_rewards(group: Group) -> dict[int, float]:
    """By candidate that was sent: its automatic reward, also where a human one was sent instead.

    Of an automatic group whose scores the journal does not have, what was sent.
    """
    human = group.source == "human"
    found: dict[int, float] = {}
    for one in group.candidates:
        if one.reward is not None:
            value = one.auto_reward if human or one.auto_reward is not None else one.reward
            if value is not None:
                found[one.index] = value
    return found


def hand_score(group: Group) -> float | None:
    """The human reward of the answer the automatic rewards put first, in a human-rated group.

    1 for a vote that names it and 0 for one that names another; of scores, its own. Several
    answers with the highest reward count as their mean. None where there is no automatic reward.
    """
    if group.source != "human":
        return None
    winners = top(automatic_rewards(group))
    if not winners:
        return None
    rewards = {one.index: one.reward or 0.0 for one in group.candidates}
    return sum(rewards[index] for index in winners) / len(winners)


def count_group(stats: StepStats, group: Group) -> None:
    """Add one sealed group to the running figures of its step.

    Human rewards are on a scale of their own (the mean of one best of four is always 0.25), so
    the automatic rewards of all groups are counted apart from what is sent.
    """
    stats.groups += 1
    stats.dead += bool(group.dead)
    for one in group.candidates:
        if (reward := one.reward) is not None:
            stats.rewards += 1
            stats.mean += (reward - stats.mean) / stats.rewards
            stats.square += (reward * reward - stats.square) / stats.rewards
    for reward in automatic_rewards(group).values():
        stats.auto += 1
        stats.auto_mean += (reward - stats.auto_mean) / stats.auto
        stats.auto_square += (reward * reward - stats.auto_square) / stats.auto
    if group.source == "human":
        stats.by_hand += 1
    if (score := hand_score(group)) is not None:
        stats.hand += 1
        stats.hand_mean += (score - stats.hand_mean) / stats.hand
