"""Reward for warm, lively answers that stay on topic and do not repeat themselves.

    reward = quality * (0.6 * enthusiasm + 0.2 * relevance + 0.2 * diversity)

Everything lies between 0 and 1. The weights can be set with W_ENTHUSIASM, W_RELEVANCE, W_DIVERSITY.
"""

import os
import re
from collections import deque

from ajet.utils.compute_madness import has_repeat

W_ENTHUSIASM = float(os.getenv("W_ENTHUSIASM", "0.6"))
W_RELEVANCE = float(os.getenv("W_RELEVANCE", "0.2"))
W_DIVERSITY = float(os.getenv("W_DIVERSITY", "0.2"))

_LIVELY = """
amazing awesome beautiful brilliant cheerful delighted delightful enjoy excellent excited
exciting fabulous fantastic favourite favorite fun glad great happy incredible joy love lovely
marvellous perfect spectacular super thrilled vibrant wonderful wow yay
"""
LIVELY = set(_LIVELY.split())
DULL = {"unfortunately", "boring", "whatever", "cannot", "unable", "meh"}

recent: deque[frozenset[str]] = deque(maxlen=50)
"""Words of earlier groups' answers; kept between calls until this file is saved."""


def words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.lower())


def enthusiasm(text: str) -> float:
    """Return the density of lively words and exclamation marks; the tenth `!` adds nothing."""
    spoken = words(text)
    if not spoken:
        return 0.0
    lively = sum(word in LIVELY for word in spoken) - sum(word in DULL for word in spoken)
    marks = min(text.count("!"), 3)
    return max(0.0, min(1.0, (2.0 * lively + marks) / (4.0 + len(spoken) / 10)))


def relevance(text: str, question: str) -> float:
    """Return the share of the question's longer words that the answer uses."""
    wanted = {word[:5] for word in words(question) if len(word) > 3}
    if not wanted:
        return 1.0
    return len(wanted & {word[:5] for word in words(text)}) / len(wanted)


def diversity(own: frozenset[str], others: list[frozenset[str]]) -> float:
    """Return 1 minus the largest Jaccard overlap with a sibling or a recent answer."""
    if not own:
        return 0.0
    return 1.0 - max((len(own & other) / len(own | other) for other in others), default=0.0)


def quality(text: str) -> float:
    """Return 0 for an empty or repetitive answer, else 1."""
    if not text.strip() or has_repeat(text.split()) or has_repeat(text, 4, 200):
        return 0.0
    return 1.0


async def on_compute_relative_reward(
    valid_results: list, all_answers: list[dict], question: str = ""
) -> list[float]:
    """Return one reward per answer; figures written into an answer become reward parts."""
    texts = [answer.get("content") or "" for answer in all_answers]
    bags = [frozenset(words(text)) for text in texts]
    rewards = []
    for index, (answer, text) in enumerate(zip(all_answers, texts, strict=True)):
        siblings = bags[:index] + bags[index + 1 :]
        answer["enthusiasm"] = enthusiasm(text)
        answer["relevance"] = relevance(text, question)
        answer["diversity"] = diversity(bags[index], siblings + list(recent))
        answer["quality"] = quality(text)
        if not answer["quality"]:
            answer["quality_reason"] = "empty, or turning in circles"
        rewards.append(
            answer["quality"]
            * (
                W_ENTHUSIASM * answer["enthusiasm"]
                + W_RELEVANCE * answer["relevance"]
                + W_DIVERSITY * answer["diversity"]
            )
        )
    recent.extend(bags)
    return rewards
