"""A black-box agent: reads a question, calls the model at OPENAI_BASE_URL, prints the answer.

Replace it by your own, in any language: the agent contains nothing about training.
"""

import json
import os
import sys
import urllib.request

URL = os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions"
KEY = os.environ["OPENAI_API_KEY"]
MODEL = os.environ.get("OPENAI_MODEL", "policy")


def ask(messages: list[dict[str, str]]) -> str:
    """Call the model once."""
    body = json.dumps({"model": MODEL, "messages": messages}).encode()
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    with urllib.request.urlopen(urllib.request.Request(URL, body, head), timeout=100) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"] or "")


if __name__ == "__main__":
    sys.stdout.write(ask([{"role": "user", "content": sys.stdin.read().strip()}]) + "\n")
