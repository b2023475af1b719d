"""What is known now: plain records that only the reducer changes.

Collections are capped (`GROUP_CAP` and its kin); what fell out is read from the journal by page.
"""

import msgspec

from core.state.group import OPEN_PHASES, SEALED_PHASES, Candidate, Group
from core.state.mock import Mock, MockRow
from core.state.proxy import Alert, Totals
from core.state.rating import Lease, PartAgreement, RaterStats, Rating
from core.state.rewards import JudgeSpend, RewardFault, Rewards, RewardWatch, WhatIf
from core.state.server import Operation, Pool, Probe, SentJob, Server, Slots, Span, StepStats

GROUP_CAP = 500
TEXT_CAP = 2_000
"""Characters of a query or an answer kept in state; the whole text is in the journal."""
SPAN_CAP = 400
STEP_CAP = 500
ALERT_CAP = 100
ROW_CAP = 300
PROBE_CAP = 50
STARTS_WITHIN = 20.0
"""Seconds in which the home's own engine, which starts beside the proxy, is expected to answer."""
ANSWERS_WITHIN = 5.0
"""The same for any other server, which is there already: else its URL may be wrong."""


class State(msgspec.Struct, kw_only=True):
    """Everything a screen may show."""

    seq: int = 0
    run_id: str = ""
    proxy_url: str = ""
    proxy_pid: int = 0
    client_uuid: str = ""
    proxy_up: bool = False
    """By the journal: started and not ended in order."""
    started_at: float = 0.0
    proxy_version: str = ""
    watch_only: bool = False
    """The proxy only looks on: it claims nothing and serves no requests."""
    rating_mode: str = "off"
    consoles: int = 0
    rewards: Rewards = msgspec.field(default_factory=Rewards)
    what_if: WhatIf | None = None
    """The last trial of other rewards."""
    reward_watch: RewardWatch = msgspec.field(default_factory=RewardWatch)
    judges: dict[str, JudgeSpend] = msgspec.field(default_factory=dict)
    """By the name of their reward part; counts of this run."""
    servers: dict[str, Server] = msgspec.field(default_factory=dict)
    groups: dict[str, Group] = msgspec.field(default_factory=dict)
    """Newest last."""
    alerts: dict[str, Alert] = msgspec.field(default_factory=dict)
    dismissed: dict[str, str] = msgspec.field(default_factory=dict)
    """Levels of alerts the operator has dismissed and whose cause lasts, by key."""
    mock: Mock | None = None
    totals: Totals = msgspec.field(default_factory=Totals)
    tries: list[Probe] = msgspec.field(default_factory=list)
    """Prompts the operator tried, newest last."""
    raters: dict[str, RaterStats] = msgspec.field(default_factory=dict)
    """By name; the empty one is who gave none."""

    def open_groups(self) -> list[Group]:
        """Groups that are not over, oldest first."""
        return [group for group in self.groups.values() if group.open]

    def waiting(self) -> list[Group]:
        """Groups open to a rating now: those whose user waits first, then the shortest clock.

        The timeout of a client that waits, where it is known, counts as a clock.
        """
        found = [group for group in self.groups.values() if group.phase == "AWAITING_RATING"]
        return sorted(
            found, key=lambda group: (not group.user_waits, _clock(group), group.opened_at)
        )


def _clock(group: Group) -> float:
    """When it is too late to rate it: its clock ends, or its user's client gives up."""
    return min(group.until or 0.0, group.gives_up_at or float("inf"))
