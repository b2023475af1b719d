"""The window of the policy that a running proxy serves."""

from typing import Any

from core.runtime.tls import verification_for

LIMIT = 3.0
"""Seconds the proxy may take to answer."""

AGENT_PROMPT = 16_384
"""Tokens that the first prompt of a coding agent comes near to."""
SMALL = (
    "The engine's window is {context} tokens; coding agents send 10,000 and more. Such a prompt is "
    "cut to the window, and its group is not trained on: use a larger model (`run engine --backend "
    "torch`) or a GPU server. With `run engine --strict-context` it is refused with a 400."
)


def window_of(base: str, key: str, cert: str) -> int | None:
    """Tokens of the served model's window; None when the proxy does not say.

    Args:
        base: The proxy's address without `/v1`.
        key: Its API key; empty when it asks for none.
        cert: File with the certificate it shows; may be empty.
    """
    import httpx
    import msgspec

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(
            verify=verification_for(base, cert), trust_env=False, timeout=LIMIT
        ) as client:
            answer = client.get(f"{base}/v1/models", headers=headers)
        answer_body: Any = msgspec.json.decode(answer.content)
        length = answer_body["data"][0]["max_model_len"]
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError, LookupError, TypeError):
        return None
    return length if isinstance(length, int) and length > 0 else None
