"""Figures by global step, kept as groups are sealed."""

from core.state import STEP_CAP, Server
from core.state_steps import StepStats


def step_stats(server: Server, step: int, at: float) -> StepStats:
    """The record of `step`, made in its place when it is new."""
    place = len(server.steps)
    while place and server.steps[place - 1].step >= step:
        place -= 1
        if server.steps[place].step == step:
            return server.steps[place]
    stats = StepStats(step=step, began_at=at)
    server.steps.insert(place, stats)
    del server.steps[:-STEP_CAP]
    return stats


def count_rewards(stats: StepStats, rewards: list[float], dead: bool, by_hand: bool) -> None:
    """Add one sealed group to the running means and mean square."""
    stats.groups += 1
    stats.dead += dead
    for reward in rewards:
        stats.rewards += 1
        stats.mean += (reward - stats.mean) / stats.rewards
        stats.square += (reward * reward - stats.square) / stats.rewards
        if by_hand:
            stats.by_hand += 1
            stats.hand_mean += (reward - stats.hand_mean) / stats.by_hand
