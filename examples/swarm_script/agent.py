"""Agent of both scripts: one question, one answer, a reward for enthusiasm."""

import json
import urllib.request

from ajet_swarm.compat import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput

MARKS = 3
"""Number of exclamation marks for the whole reward."""


def execute_agent(task: Task, api_baseurl_key: OpenaiBaseUrlAndApiKey) -> WorkflowOutput:
    """Ask the policy the task's question; any OpenAI client works."""
    body = {"model": "any", "messages": [{"role": "user", "content": task.main_query}]}
    request = urllib.request.Request(
        f"{api_baseurl_key.base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            "Authorization": f"Bearer {api_baseurl_key.api_key}",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"] or ""
    reward = min(1.0, text.count(task.metadata.get("mark", "!")) / MARKS)
    return WorkflowOutput(
        reward=reward, metadata={"answer": text}, log_metrics={"length": float(len(text))}
    )
