"""A look while a rating is open that holds all episodes of the batch, in the real processes."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.runtime.home import running
from tests.support.stack import Stack, until
from tests.torch.models import make_model

pytestmark = pytest.mark.timeout(400)

PROMPTS = ("What is 2 + 2?", "What is 3 + 5?", "Name a colour.")


def post(stack: Stack, path: str, body: dict[str, Any]) -> None:
    """Send a request of the control API, or of `/v1`, to the proxy."""
    info = running(stack.home, "proxy")
    assert info is not None
    headers = {"authorization": f"Bearer {stack.home.token()}"}
    url = f"{info.url}{path}"
    answer = httpx.post(url, json=body, headers=headers, trust_env=False, timeout=110)
    assert answer.status_code == 200, answer.text


def test_a_look_is_complete_while_a_rating_is_open(tmp_path: Path) -> None:
    model, file = make_model(tmp_path / "model"), tmp_path / "probe.jsonl"
    rows = [{"prompt": prompt, "reference": "4"} for prompt in PROMPTS]
    rows.append({"prompt": "too long " * 30, "reference": "4"})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Stack(tmp_path / "home") as stack:
        stack.environment |= {
            "AJET_CONSOLE__ENGINE__BACKEND": "torch",
            "AJET_CONSOLE__ENGINE__MODEL": str(model),
            "AJET_CONSOLE__RATING__MODE": "answer_first",
            "AJET_CONSOLE__RATING__WINDOW": "0.1",
            "AJET_CONSOLE__PROBE__SHARE": "0.3",
            "AJET_CONSOLE__PROBE__FILE": str(file),
            "AJET_CONSOLE__PROBE__EVERY": "1000",
        }
        stack.engine("--backend", "torch", "--model", str(model), "--device", "cpu")
        stack.proxy()
        started = stack.run("engine", "start", "--preset", "hand")
        assert started.returncode == 0, started.stderr
        stack.rolling()
        chat = {"model": "m", "messages": [{"role": "user", "content": "Say something."}]}
        post(stack, "/v1/chat/completions", chat)
        (group,) = until("an open rating", lambda: stack.state().waiting())
        episodes = len(stack.claimed())
        assert episodes == len(group.candidates)
        until("the baseline", lambda: stack.progress().baseline)

        assert stack.run("progress", "look").returncode == 0
        current = until("a look", lambda: stack.progress().current)
        assert current is not None
        assert current.verdict is not None
        assert current.verdict.prompts == len(PROMPTS)
        assert (current.step, stack.step()) == (1, 1)
        assert len(stack.claimed()) == episodes
        assert [group.group_id for group in stack.state().waiting()] == [group.group_id]
        looked = current.verdict.look

        vote = {"group_id": group.group_id, "rating": "best", "order": [1], "rater": "ada"}
        post(stack, "/control/commands/group.rate", vote)
        until("an update by the vote", lambda: stack.step() == 2)
        post(stack, "/v1/chat/completions", chat)
        until("an open rating", lambda: stack.state().waiting())
        assert stack.run("progress", "look").returncode == 0

        def later() -> bool:
            now = stack.progress().current
            return now is not None and now.verdict is not None and now.verdict.look > looked

        until("a look after the update", later)
        after = stack.progress().current
        assert after is not None
        assert after.step == 2
        assert stack.state().waiting()
