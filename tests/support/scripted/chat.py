"""What a scripted server makes of keys and of answers."""

import base64
import json
import time
import uuid
from typing import Any


async def by_episode(name: str, body: dict[str, Any], index: int) -> str:
    return f"answer {index} of {name[:6]}"


def episode_of(header: str) -> tuple[str, str]:
    """The episode that a key names, else the error."""
    if not header:
        return "", "Missing authorization header"
    text = header.replace("Bearer ", "").replace("bearer ", "").replace("sk-ajet-", "")
    try:
        body = json.loads(base64.b64decode(text))
        name = body["episode_uuid"]
    except (ValueError, KeyError, TypeError) as error:
        return "", f"Invalid authorization header: {error}"
    return (name, "") if name else ("", "Invalid authorization data")


def completion(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict) and "choices" in answer:
        return answer
    message = {"role": "assistant", "content": answer} if isinstance(answer, str) else dict(answer)
    message = {"role": "assistant", "content": None, "refusal": None, **message}
    calls = bool(message.get("tool_calls"))
    words = len(str(message.get("content") or "").split())
    return {
        "id": uuid.uuid4().hex,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "unknown",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if calls else "stop",
                "logprobs": None,
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": words, "total_tokens": 7 + words},
    }
