"""`/tokenize` and `/detokenize` in vLLM's shapes: how long a prompt is before it is sent.

They need no episode. What is counted is the prompt that a chat call would be answered from, so of a
conversation over the window it is what is left of it (`truncated`), as in the call's `usage`.
"""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field, StrictInt

from engine.interface import PolicyBackend, Prompt, SamplingParams
from engine.llm.bare_prompts import render_messages, text_prompt
from engine.llm.chat import ChatRequest, answer_limit, validate
from engine.server.job import Job
from engine.server.lifecycle import Engine, EngineError


class Tokenized(BaseModel):
    """Ids of a prompt."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    truncated: bool = Field(description="Ours: the conversation is longer than the window.")


class Detokenize(BaseModel):
    """What of a request is read."""

    tokens: list[Annotated[StrictInt, Field(ge=0, le=1 << 30)]]


class Detokenized(BaseModel):
    """Text of ids; tags are nothing."""

    prompt: str


class TextRequest(BaseModel):
    """A request for the ids of a text, without a template."""

    prompt: str


def tokenize_routes(engine: Engine) -> APIRouter:
    """Both routes; they answer while a policy is loaded."""
    router = APIRouter()

    def policy() -> PolicyBackend:
        found = engine.backend.policy
        if found is None:
            raise EngineError(404, f"No policy is loaded. Current status: [{engine.status}].")
        return found

    @router.post("/tokenize")
    async def tokenize(body: dict[str, Any]) -> Tokenized:
        """Ids of `messages` (with `tools`) as a chat call renders them, or of a text, `prompt`."""
        loaded = policy()
        if "messages" in body:
            made = _conversation(loaded, engine.job, validate(ChatRequest, body))
        else:
            made = text_prompt(loaded, validate(TextRequest, body).prompt)
        ids = list(made.tokens)
        return Tokenized(
            count=len(ids),
            max_model_len=loaded.context,
            tokens=ids,
            token_strs=loaded.spell(ids) if body.get("return_token_strs") is True else None,
            truncated=made.truncated,
        )

    @router.post("/detokenize")
    async def detokenize(body: Detokenize) -> Detokenized:
        """Text of ids."""
        return Detokenized(prompt=policy().decode(body.tokens))

    return router


def _conversation(policy: PolicyBackend, job: Job | None, request: ChatRequest) -> Prompt:
    limit = SamplingParams().max_tokens
    if job is not None:
        limit = answer_limit(job, policy.context, request)
    return render_messages(policy, request.conversation(), request.offered_tools(), limit)
