"""Facts about a server, derived from its state and from the processes of this console."""

from msgspec.structs import replace

from console.session.app_state import Session
from console.text.format import elapsed
from core.state import Server, StepStats

BOOT_SUSPECT_AFTER = 60.0
"""Seconds after which a boot seems to have failed."""


def ended(server: Server, session: Session) -> bool:
    """Return whether a server does not answer because its process, started here, has crashed."""
    return (
        server.own
        and bool(server.lost)
        and any(child.role == "engine" for child in session.crashed)
    )


def as_ended(server: Server, session: Session) -> Server:
    """Return the server; without a pending first answer when its process has ended."""
    return replace(server, expected_until=0.0) if ended(server, session) else server


def boot_trouble(server: Server, now: float, *, read_only: bool = False) -> str:
    """Return why a boot seems to have failed, and what to do; empty while it does not."""
    if server.state != "BOOTING" or not server.since or now - server.since < BOOT_SUSPECT_AFTER:
        return ""
    advice = "Stop the engine (k), look at its log (F7), then start it again (s)"
    return f"BOOTING for {elapsed(now - server.since)}: the start has probably failed. " + (
        "Its log (F7) shows why" if read_only else advice
    )


def step_reward(step: StepStats) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of the automatic rewards, else of all rewards.

    Both are None if the groups of this console have only human rewards.
    """
    if step.auto:
        return step.auto_mean, step.auto_std
    if step.by_hand:
        return None, None
    return step.update.get("reward_mean"), step.update.get("reward_std")
