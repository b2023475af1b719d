"""`/tokenize` and `/detokenize` in vLLM's form: the length of a prompt before it is sent.

They need no episode. The prompt is rendered as for a chat call; of a conversation over the window
only the remaining part is counted (`truncated`), as in the call's `usage`.
"""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field, StrictInt

from core.dialects.validation import typed
from engine.interface import PolicyBackend, Prompt, SamplingParams
from engine.llm.bare_prompts import render_messages, text_prompt
from engine.llm.chat import ChatRequest, answer_limit, checked, read_chat
from engine.server.lifecycle import Engine, EngineError


class Tokenized(BaseModel):
    """Token ids of a prompt."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    truncated: bool = Field(description="Ours: the conversation is longer than the window.")


class Detokenize(BaseModel):
    """Fields of a `/detokenize` request."""

    tokens: list[Annotated[StrictInt, Field(ge=0, le=1 << 30)]]


class Detokenized(BaseModel):
    """Text of token ids; control tokens decode to nothing."""

    prompt: str


class _TextRequest(msgspec.Struct):
    """A request for the ids of plain text, without a chat template."""

    prompt: str


def tokenize_routes(engine: Engine) -> APIRouter:
    """Return both routes; they work while a policy is loaded."""
    router = APIRouter()

    def policy() -> PolicyBackend:
        loaded = engine.policy_holder.policy
        if loaded is None:
            raise EngineError(404, f"No policy is loaded. Current status: [{engine.status}].")
        return loaded

    @router.post("/tokenize")
    async def tokenize(body: dict[str, Any]) -> Tokenized:
        """Return the ids of `messages` (with `tools`) as a chat call renders them, or of the text
        `prompt`."""
        loaded = policy()
        if "messages" in body:
            prompt = _conversation(loaded, engine, read_chat(checked(body)))
        else:
            prompt = text_prompt(loaded, typed(body, _TextRequest, "body").prompt)
        ids = list(prompt.tokens)
        return Tokenized(
            count=len(ids),
            max_model_len=loaded.context,
            tokens=ids,
            token_strs=loaded.token_texts(ids) if body.get("return_token_strs") is True else None,
            truncated=prompt.truncated,
        )

    @router.post("/detokenize")
    async def detokenize(body: Detokenize) -> Detokenized:
        """Return the text of ids."""
        return Detokenized(prompt=policy().decode(body.tokens))

    return router


def _conversation(policy: PolicyBackend, engine: Engine, request: ChatRequest) -> Prompt:
    limit = SamplingParams().max_tokens
    if engine.job_support.loads_models:
        limit = 1  # an answer takes what the prompt leaves
    elif engine.job is not None:
        limit = answer_limit(engine.job, policy.context, request)
    return render_messages(policy, request.conversation(), request.offered_tools(), limit)
