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
_RECOMMENDED: Final = re.compile(r"Recommended.*ppo_max_token_len_per_gpu *= *(\d{1,9})")
_FITS: Final = re.compile(r"L=(\d{1,9}) tok/gpu.*-> OK +peak=([\d.]{1,9})GB")


def probe_result(lines: Iterable[VerboseLog]) -> str:
    """Return what the probe found, as text; empty if the log has no line of it."""
    texts = [line.message or "" for line in lines if line.tag == _TAG]
    if not texts:
        return ""
    for text in texts:
        if found := _RECOMMENDED.search(text):
            return f"ajet.rollout.ppo_max_token_len_per_gpu = {found[1]} is recommended"
    fits = [found for text in texts if (found := _FITS.search(text))]
    if not fits:
        return "no size that fits; its reason is in the server's log"
    tokens, gigabytes = max(fits, key=lambda one: int(one[1])).groups()
    return (
        f"{tokens} tokens per GPU fit ({gigabytes} GB); the server's log has the recommended "
        "ajet.rollout.ppo_max_token_len_per_gpu"
    )
