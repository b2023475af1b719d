"""Reward for extraverted answers that stay on topic and do not repeat themselves.

    reward = quality * (0.6 * extraversion + 0.25 * relevance + 0.15 * diversity)

Everything lies between 0 and 1. Set by the environment:

    REWARD_MODE     words (the default), or an LLM judges extraversion: pointwise, listwise
    JUDGE_BASE_URL, JUDGE_MODEL, JUDGE_API_KEY   the judge, an OpenAI-compatible address
    W_EXTRAVERSION, W_RELEVANCE, W_DIVERSITY     the weights
"""

import os
from collections import deque

import persona_judge
import persona_words
from ajet.utils.compute_madness import has_repeat
from beast_logger import print_listofdict
from loguru import logger

REWARD_MODE = os.getenv("REWARD_MODE", "words")
W_EXTRAVERSION = float(os.getenv("W_EXTRAVERSION", "0.6"))
W_RELEVANCE = float(os.getenv("W_RELEVANCE", "0.25"))
W_DIVERSITY = float(os.getenv("W_DIVERSITY", "0.15"))
_response_history: deque[frozenset[str]] = deque(maxlen=64)
"""Words of earlier groups' winners; kept between calls until a file of this folder is saved."""

if REWARD_MODE not in ("words", "pointwise", "listwise"):
    raise ValueError(f"REWARD_MODE is {REWARD_MODE!r}: words, pointwise or listwise")
if REWARD_MODE != "words" and not (persona_judge.JUDGE_BASE_URL and persona_judge.JUDGE_MODEL):
    raise ValueError(f"REWARD_MODE {REWARD_MODE} needs JUDGE_BASE_URL and JUDGE_MODEL")


def compute_quality_scores(texts: list[str]) -> list[float]:
    """Return the gate: 0 for an empty or repetitive answer, else 1."""
    return [
        0.0 if not text.strip() or has_repeat(text.split()) or has_repeat(text, 4, 200) else 1.0
        for text in texts
    ]


async def compute_extraversion_scores(question: str, texts: list[str]) -> list[float]:
    if REWARD_MODE == "pointwise":
        return await persona_judge.pointwise(question, texts)
    if REWARD_MODE == "listwise":
        return await persona_judge.listwise(question, texts)
    return [persona_words.extraversion(text) for text in texts]


def compute_diversity_scores(bags: list[frozenset[str]]) -> list[float]:
    """Return how different an answer is from its siblings and from recent winners."""
    past = list(_response_history)
    return [
        persona_words.diversity(bag, bags[:place] + bags[place + 1 :] + past)
        for place, bag in enumerate(bags)
    ]


async def on_compute_relative_reward(
    valid_results: list, all_answers: list[dict], question: str = ""
) -> list[float]:
    """Return one reward per answer; figures written into an answer are shown beside it."""
    question = question or (valid_results[0].get("question") if valid_results else "") or ""
    texts = [answer.get("content") or "" for answer in all_answers]
    bags = [frozenset(persona_words.words(text)) for text in texts]
    quality = compute_quality_scores(texts)
    extraversion = await compute_extraversion_scores(question, texts)
    diversity = compute_diversity_scores(bags)
    rewards = []
    for place, answer in enumerate(all_answers):
        answer["quality"] = quality[place]
        answer["extraversion"] = extraversion[place]
        answer["relevance"] = persona_words.relevance(texts[place], question)
        answer["diversity"] = diversity[place]
        if not quality[place]:
            answer["quality_reason"] = "empty, or turning in circles"
        answer["reward"] = quality[place] * (
            W_EXTRAVERSION * answer["extraversion"]
            + W_RELEVANCE * answer["relevance"]
            + W_DIVERSITY * answer["diversity"]
        )
        rewards.append(answer["reward"])
    if rewards:
        _response_history.append(bags[rewards.index(max(rewards))])
    print_listofdict(all_answers, header=question[:100], mod="reward")
    logger.info("rewards {}", [round(reward, 3) for reward in rewards])
    return rewards
