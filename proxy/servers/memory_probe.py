"""The result of AgentJet's memory probe, which always ends its trainer with an error.

A server that was started with `AGENTJET_FIND_MAX_PPO_TOKEN_LEN` measures in the first update how
many tokens fit on a GPU. It writes each measurement to its verbose log, and the recommended value
to the error that ends the trainer.
"""

import re
from collections.abc import Iterable
from typing import Final

from ajet_swarm.protocol.schemas import VerboseLog

_TAG: Final = "find_max_ppo_token_len"
_KEY: Final = "ajet.rollout.ppo_max_token_len_per_gpu"
_VARIABLE: Final = "AGENTJET_FIND_MAX_PPO_TOKEN_LEN"
_RECOMMENDED: Final = re.compile(r"Recommended.*ppo_max_token_len_per_gpu *= *(\d{1,9})")
_FITS: Final = re.compile(r"L=(\d{1,9}) tok/gpu.*-> OK +peak=([\d.]{1,9})GB")


def probe_result(lines: Iterable[VerboseLog]) -> str:
    """Return what the probe found, as text; empty if the log has no line of it."""
    texts = [line.message or "" for line in lines if line.tag == _TAG]
    if not texts:
        return ""
    result = "no size that fits; the server's log has the reason"
    if fits := [found for text in texts if (found := _FITS.search(text))]:
        tokens, gigabytes = max(fits, key=lambda one: int(one[1])).groups()
        result = f"{tokens} tokens per GPU fit ({gigabytes} GB); the server's log has the"
        result = f"{result} recommended {_KEY}"
    for text in texts:
        if found := _RECOMMENDED.search(text):
            result = f"{_KEY} = {found[1]} is recommended"
    return f"its memory probe has ended: {result}; restart the server without {_VARIABLE}"
