"""Checks of a prompt's length against the upstream's context window, and its tokenizer routes.

A real AgentJet server reports neither, so its prompts are not checked in advance.
"""

import logging
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from ajet_swarm.http.interface import Request
from ajet_swarm.protocol.errors import SwarmError
from core.dialects.errors import ApiError
from core.dialects.validation import bad_value
from proxy.context import ProxyContext, ServerHandle
from proxy.dialects.chat.completions import NO_TOKENS, EchoRefused
from proxy.dialects.request import ChatRequest
from proxy.dialects.tokenize import model_of
from proxy.http.errors import overloaded
from proxy.http.exchange import parse
from proxy.upstream.bare_prompts import PROMPT

log = logging.getLogger(__name__)

NOT_FOUND = b'{"detail":"Not Found"}'
"""Body of a 404 for a route that the upstream does not have."""
ASK_LIMIT = 10.0
"""Timeout in seconds for the upstream's tokenizer."""
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
COMPLETIONS = "/v1/completions"
TOKEN_CHARACTERS = 16
"""Characters per token, at most: a prompt with more characters than this for the whole window is
refused without a tokenizer."""

_TEMPLATE_FIELDS = (
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
)
"""Fields of a chat request that change its prompt and that vLLM's `/tokenize` accepts."""
_ENGINE_FIELDS = ("tool_choice", "max_tokens", "max_completion_tokens")
"""Further fields that the embedded engine's `/tokenize` accepts."""
_encode = msgspec.json.Encoder().encode


class TokenCount(msgspec.Struct, frozen=True):
    """Response of `/tokenize`."""

    count: int
    truncated: bool = False
    """The prompt has more tokens and would be truncated to `count`."""


class _Text(msgspec.Struct, frozen=True):
    """Response of `/detokenize`."""

    prompt: str


class ContextWindows:
    """Refuses prompts that exceed the context window, before episodes are claimed for them.

    Args:
        context: The shared parts of the proxy.
    """

    def __init__(self, context: ProxyContext) -> None:
        self._context = context

    async def check(self, request: ChatRequest) -> None:
        """Check the length of a prompt; call the tokenizer only if it may be too long.

        Raises:
            ApiError: vLLM's 400 for a prompt that is too long.
        """
        server = self._context.server_of(request.model)
        limit, strict = server.window, server.strict_window
        if limit is None or not (strict or server.info.strict_context):
            return
        requested = _requested_tokens(request.body)
        prompt_limit = limit - requested if strict else limit // 2
        if _prompt_bytes(request) <= prompt_limit or not server.watcher.current.reachable:
            return
        counted = await tokenize(server, request)
        if counted is None:
            fits = not strict or requested < limit  # else too long even for an empty prompt
        elif strict:
            fits = counted.count + max(requested, 1) <= limit
        else:  # the engine shortens the answer to the free space
            fits = not counted.truncated
        if not fits:
            count = counted.count if counted is not None and strict else None
            raise too_long(limit, count, requested, _characters(request))

    async def prepared(self, request: ChatRequest) -> ChatRequest:
        """Return a legacy request with its token ids decoded, for the server's completions route.

        The prompt is added unchanged if the server has such a route. Other requests are returned
        unchanged.

        Raises:
            ApiError: 400; the upstream cannot decode the prompt's token ids.
        """
        if request.dialect != "completions":
            return request
        if request.parts:
            parts = tuple([await self.prepared(part) for part in request.parts])
            return msgspec.structs.replace(request, parts=parts)
        server = self._context.server_of(request.model)
        (prompt,) = request.extra.prompts
        body = dict(request.body)
        if not isinstance(prompt, str):
            query = await _text_of(server, prompt, request.model)
            messages = [{"role": "user", "content": query}]
            request = msgspec.structs.replace(request, messages=messages, query=query)
            body["messages"] = messages
        if server.info.bare_prompts or await _lists_completions(server):  # without a template
            body[PROMPT] = prompt
        return msgspec.structs.replace(request, body=body)

    async def passed_on(self, data: bytes, refusal: EchoRefused) -> tuple[int, bytes]:
        """Send a legacy request unchanged to an upstream in observe mode with such a route.

        Nothing is claimed and no group is opened: the request is about its prompt.

        Returns:
            Status and body of the upstream's answer.

        Raises:
            ApiError: The upstream has no such route: `refusal`; or it gave no answer.
        """
        model = await parse(data, model_of)
        server = self._context.server_of(model)
        if not await _lists_completions(server):
            raise refusal
        seconds = self._context.settings.proxy.stream_budget
        try:
            return await ask(server, COMPLETIONS, data, seconds)
        except SwarmError:
            raise server.overloaded(model, 10) from None


async def _lists_completions(server: ServerHandle) -> bool:
    try:
        return COMPLETIONS in await server.client.features()
    except SwarmError:  # the server is not reachable
        return False


async def _text_of(server: ServerHandle, ids: list[int], model: str) -> str:
    """Decode token ids with the upstream's tokenizer.

    Raises:
        ApiError: The upstream has no tokenizer route, or cannot decode the ids.
    """
    body = {"tokens": ids, **({"model": model} if model else {})}
    try:
        status, answer = await ask(server, DETOKENIZE, _encode(body))
        if status == 200:
            return msgspec.json.decode(answer, type=_Text).prompt
    except (SwarmError, msgspec.MsgspecError) as error:
        log.info("%s cannot decode token ids: %s", server.name, error)
    raise bad_value(NO_TOKENS, "prompt")


def too_long(window: int, prompt_tokens: int | None, requested: int, characters: int) -> ApiError:
    """Return vLLM's error for a prompt that is too long.

    Args:
        window: The context window in tokens.
        prompt_tokens: Tokens of the prompt; None if unknown.
        requested: Requested tokens of the answer; 0 if the request does not limit them.
        characters: Characters of the prompt; named instead of tokens if there are too many for any
            tokenizer.
    """
    free = window - requested
    fitting = free * TOKEN_CHARACTERS
    detail, param = "", "input_tokens"
    if characters > fitting >= 0:
        param, detail = "input_text", f" (parameter=input_text, value={characters})"
        known = (
            f"{characters} characters (more than {fitting} characters, "
            f"which is the upper bound for {free} input tokens)"
        )
    elif prompt_tokens is None:
        known = "more input tokens than fit in it" if free > 0 else "at least 1 input tokens"
    else:
        detail = f" (parameter=input_tokens, value={prompt_tokens})"
        known = f"{prompt_tokens} input tokens"
        if requested:
            known = f"at least {known}, for a total of at least {prompt_tokens + requested} tokens"
    asked = f"you requested {requested} output tokens and " if requested else ""
    reducible = " or the number of requested output tokens" if requested else ""
    text = (
        f"This model's maximum context length is {window} tokens. However, {asked}your prompt "
        f"contains {known}. Please reduce the length of the input prompt{reducible}.{detail}"
    )
    return ApiError(400, None, text, param=param)


async def count_tokens(server: ServerHandle, request: ChatRequest) -> int | None:
    """Return the tokens of the prompt by the upstream's tokenizer; None without a tokenizer."""
    counted = await tokenize(server, request)
    return None if counted is None else counted.count


async def tokenize(server: ServerHandle, request: ChatRequest) -> TokenCount | None:
    """Return the response of the upstream's tokenizer; None without a tokenizer or a response."""
    names = _TEMPLATE_FIELDS if server.strict_window else (*_TEMPLATE_FIELDS, *_ENGINE_FIELDS)
    body = {name: request.body[name] for name in names if request.body.get(name) is not None}
    try:
        data = _encode({**body, "messages": request.messages})
        status, answer = await ask(server, TOKENIZE, data)
        return msgspec.json.decode(answer, type=TokenCount) if status == 200 else None
    except (SwarmError, ApiError, msgspec.MsgspecError) as error:
        log.info("%s cannot count tokens: %s", server.name, error)
        return None


def check_reachable(server: ServerHandle, model: str = "") -> None:
    """Refuse a request for an unreachable server at once, without a timeout.

    Args:
        server: The server.
        model: The request's model, for the error.

    Raises:
        ApiError: The server is not reachable.
    """
    if not server.watcher.current.reachable:
        raise server.overloaded(model, 10)


async def ask(
    server: ServerHandle, path: str, data: bytes, seconds: float = ASK_LIMIT
) -> tuple[int, bytes]:
    """Send a request to a read-only route of the upstream.

    Args:
        server: The server.
        path: Path of the route, such as `/tokenize`.
        data: JSON body.
        seconds: Time limit.

    Returns:
        Status and body of the response; status 404 if the upstream does not have the route.

    Raises:
        SwarmError: There was no response.
        ApiError: The server is not reachable, or its error was not caused by the request.
    """
    check_reachable(server)
    client = server.client
    if path not in await client.features():
        return 404, NOT_FOUND
    answer = await client.transport.request(
        Request(
            "POST",
            client.url + path,
            body=data,
            headers={"content-type": "application/json"},
            timeout=seconds,
            repeatable=True,
        )
    )
    if answer.status in (401, 403) or answer.status >= 500:
        raise overloaded(5)
    return answer.status, answer.body


def _requested_tokens(body: dict[str, Any]) -> int:
    """Return the requested tokens of the answer; 0 if the request does not limit them."""
    value = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    return value if isinstance(value, int) else 0


def _prompt_bytes(request: ChatRequest) -> int:
    """Return the size of the prompt in bytes, an upper bound of its number of tokens."""
    tools = request.body.get("tools")
    return len(_encode(request.messages)) + (len(_encode(tools)) if tools else 0)


def _characters(request: ChatRequest) -> int:
    """Return the characters of the prompt's texts, without those of the chat template."""
    return sum(len(content_text(message.get("content"))) for message in request.messages)
