"""The abstention of a group names the place where its hook failed."""

from pathlib import Path

from core.events import ScoringAbstained
from proxy.rewards.source import Abstention, GroupContext, ScoreSheet
from tests.support.proxy.world import world


async def test_file_and_line_reach_the_event_and_the_state(tmp_path: Path) -> None:
    why = Abstention("hook", "returned 1 rewards for 2", "", "/hooks/reward.py", 12)
    async with world(tmp_path) as w:

        async def failing(ctx: GroupContext) -> ScoreSheet:
            return ScoreSheet((), why, "v1", 0.0)

        w.source.score = failing  # type: ignore[method-assign]
        ticket = await w.ask("hello")
        await w.reply(ticket)
        (scoring_abstained,) = w.kinds(ScoringAbstained)
        assert (scoring_abstained.file, scoring_abstained.line) == ("/hooks/reward.py", 12)
        group = w.state.groups[scoring_abstained.group_id]
        assert (group.fault_file, group.fault_line) == ("/hooks/reward.py", 12)
