"""A memory probe of AgentJet ends the trainer with an error, and is shown as a result."""

from pathlib import Path

import pytest

from console.models.advice import advice_context
from console.text.alerts import alert_text
from tests.support.proxy.world import world
from tests.support.scripted.swarm import ScriptedSwarm

TAG = "find_max_ppo_token_len"
HEAD = "[FIND_MAX_PPO_TOKEN_LEN][rank0]"
MEASURED = [
    (TAG, f"{HEAD} start=4096 cap=65536 ceil=73.6GB margin=0.9"),
    (TAG, f"{HEAD} L=4096 tok/gpu (synth_total=4096) -> OK  peak=30.12GB"),
    (TAG, f"{HEAD} L=8192 tok/gpu (synth_total=8192) -> OK  peak=55.40GB"),
    (TAG, f"{HEAD} L=16384 tok/gpu (synth_total=16384) -> OOM peak=79.00GB"),
]
RESULT = (TAG, "  Recommended (x0.9 head-room): ajet.rollout.ppo_max_token_len_per_gpu = 10800")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([("server", "hello")], "is off: stopped by someone else, or its trainer ended"),
        (
            MEASURED,
            "memory probe has ended: 8192 tokens per GPU fit (55.40 GB); the server's log has the",
        ),
        (MEASURED[:1], "memory probe has ended: no size that fits"),
        ([*MEASURED, RESULT], "ajet.rollout.ppo_max_token_len_per_gpu = 10800 is recommended"),
    ],
)
async def test_a_memory_probe_is_a_result(
    tmp_path: Path, lines: list[tuple[str, str]], words: str
) -> None:
    async with ScriptedSwarm() as swarm, world(tmp_path, swarm, watched=True) as made:
        swarm.log_lines = lines
        await made.until(lambda: made.state.servers["s"].state == "ROLLING")
        swarm.set_state("OFFLINE", 0)

        def shown() -> str:
            alert = made.state.alerts.get("off:s")
            return alert_text(alert, advice_context()).cause if alert is not None else ""

        await made.until(lambda: words in shown())
