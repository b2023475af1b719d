"""What is known of an upstream's tokenizer and window, and the prompts that are too long for it.

A real AgentJet server tells neither, so nothing is refused for it beforehand.
"""

import logging
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from ajet_swarm.http.interface import Request
from ajet_swarm.protocol.errors import SwarmError
from proxy.admission.registry import Groups
from proxy.context import ProxyContext, ServerHandle
from proxy.dialects.chat.completions import NO_TOKENS
from proxy.dialects.request import ChatRequest
from proxy.dialects.validation import bad_value
from proxy.http.errors import ApiError, overloaded
from proxy.http.router import NOT_FOUND
from proxy.servers.bare_prompts import PROMPT
from proxy.servers.observe_client import ObserveClient
from proxy.servers.observe_mode import window

log = logging.getLogger(__name__)

ASK_LIMIT = 10.0
"""Seconds the upstream's tokenizer may take."""
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
COMPLETIONS = "/v1/completions"
TOKEN_CHARACTERS = 16
"""Of the longest token: a prompt with more per token of the window is refused by its characters.
"""

_FOR_TEMPLATE = (
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
)
"""Fields of a chat request that change its prompt, as vLLM's tokenizer route takes them."""
_FOR_ENGINE = ("tool_choice", "max_tokens", "max_completion_tokens")
"""Further ones that the embedded engine's takes."""
_encode = msgspec.json.Encoder().encode


class TokenCount(msgspec.Struct, frozen=True):
    """What a tokenizer says of a prompt."""

    count: int
    truncated: bool = False
    """The prompt is longer, and would be cut to this."""


class _Text(msgspec.Struct, frozen=True):
    """Answer of `/detokenize`."""

    prompt: str


class ContextWindows:
    """Refuses prompts that are too long, before anything is claimed for them.

    Args:
        context: The proxy's shared parts.
        groups: Knows the servers' windows.
    """

    def __init__(self, context: ProxyContext, groups: Groups) -> None:
        self._context = context
        self._server_facts = groups.server_facts

    async def check(self, request: ChatRequest) -> None:
        """Look at a request; the upstream is asked only when its prompt may be too long.

        Raises:
            ApiError: vLLM's 400.
        """
        server = self._context.server_of(request.model)
        facts = self._server_facts[server.name]
        limit = window(server, facts.context_length)
        if limit is None or not (server.observes or facts.strict):
            return
        wanted = _wanted(request.body)
        room = limit - wanted if server.observes else limit // 2
        if _size(request) <= room or not server.watcher.current.reachable:
            return
        told = await tokens(server, request)
        size = _characters(request)
        if told is None:
            if server.observes and wanted >= limit:  # whatever the prompt is
                raise too_long(limit, None, wanted, "at least 1 input tokens", size)
            return
        if not server.observes:  # the engine takes no more for the answer than there is room for
            if told.truncated:
                raise too_long(limit, None, wanted, characters=size)
        elif told.count + max(wanted, 1) > limit:
            raise too_long(limit, told.count, wanted, characters=size)

    async def prepared(self, request: ChatRequest) -> ChatRequest:
        """A legacy request with its prompt as text and, where the server completes texts, bare.

        Raises:
            ApiError: 400, token ids that the upstream does not turn into text.
        """
        if request.dialect != "completions":
            return request
        if request.parts:
            parts = tuple([await self.prepared(one) for one in request.parts])
            return msgspec.structs.replace(request, parts=parts)
        server = self._context.server_of(request.model)
        (prompt,) = request.extra.prompts
        body = dict(request.body)
        if not isinstance(prompt, str):
            query = await _text_of(server, prompt, request.model)
            messages = [{"role": "user", "content": query}]
            request = msgspec.structs.replace(request, messages=messages, query=query)
            body["messages"] = messages
        if await self._completes(server):
            body[PROMPT] = prompt
        return msgspec.structs.replace(request, body=body)

    async def _completes(self, server: ServerHandle) -> bool:
        """Whether a server takes a prompt without a chat template."""
        if not server.observes:
            return self._server_facts[server.name].bare_prompts
        try:
            return COMPLETIONS in await server.client.features()
        except SwarmError:  # it cannot be asked at all now
            return False


async def _text_of(server: ServerHandle, ids: list[int], model: str) -> str:
    """The text of token ids, by the upstream's tokenizer.

    Raises:
        ApiError: it has none, or cannot read them.
    """
    body = {"tokens": ids, **({"model": model} if model else {})}
    try:
        status, answer = await ask(server, DETOKENIZE, _encode(body))
        if status == 200:
            return msgspec.json.decode(answer, type=_Text).prompt
    except (SwarmError, msgspec.MsgspecError) as error:
        log.info("%s does not turn token ids into text: %s", server.name, error)
    raise bad_value(NO_TOKENS, "prompt")


def too_long(
    limit: int,
    count: int | None,
    wanted: int,
    unknown: str = "more input tokens than fit in it",
    characters: int = 0,
) -> ApiError:
    """vLLM's words.

    Args:
        limit: The window in tokens.
        count: Those of the prompt; None when they are only known to be too many.
        wanted: Those of the answer, as asked for; 0 when the request does not say.
        unknown: What is said of a prompt whose tokens nobody counted.
        characters: Those of the prompt; so many that no tokenizer could help are named instead.
    """
    param, value = "input_tokens", count
    known = f"{count} input tokens" if count is not None else unknown
    if count is not None and wanted:
        known = f"at least {known}, for a total of at least {count + wanted} tokens"
    room = limit - wanted
    if characters > room * TOKEN_CHARACTERS >= 0:
        param, value = "input_text", characters
        known = (
            f"{characters} characters (more than {room * TOKEN_CHARACTERS} characters, which is "
            f"the upper bound for {room} input tokens)"
        )
    asked = f"you requested {wanted} output tokens and " if wanted else ""
    mend = "input prompt or the number of requested output tokens" if wanted else "input prompt"
    told = f" (parameter={param}, value={value})" if value is not None else ""
    text = (
        f"This model's maximum context length is {limit} tokens. However, {asked}your prompt "
        f"contains {known}. Please reduce the length of the {mend}.{told}"
    )
    return ApiError(400, None, text, param=param)


async def count(server: ServerHandle, request: ChatRequest) -> int | None:
    """Tokens of the request's prompt as the upstream's tokenizer counts them; None without one."""
    told = await tokens(server, request)
    return None if told is None else told.count


async def tokens(server: ServerHandle, request: ChatRequest) -> TokenCount | None:
    """What the upstream's tokenizer says; None when it has none or gives no answer."""
    names = _FOR_TEMPLATE if server.observes else (*_FOR_TEMPLATE, *_FOR_ENGINE)
    body = {name: request.body[name] for name in names if request.body.get(name) is not None}
    try:
        data = _encode({**body, "messages": request.messages})
        status, answer = await ask(server, TOKENIZE, data)
        return msgspec.json.decode(answer, type=TokenCount) if status == 200 else None
    except (SwarmError, ApiError, msgspec.MsgspecError) as error:
        log.info("%s does not count tokens: %s", server.name, error)
        return None


def see(server: ServerHandle, asked: str = "") -> None:
    """Nothing is asked of a server that cannot be reached: it would be waited for in vain.

    Args:
        server: The server.
        asked: The request's model.

    Raises:
        ApiError: it cannot.
    """
    if not server.watcher.current.reachable:
        raise server.overloaded(asked, 10)


async def ask(server: ServerHandle, path: str, data: bytes) -> tuple[int, bytes]:
    """Send a body to a route of the upstream that changes nothing.

    Returns:
        Status and body of its answer; a 404 of ours when it has no such route.

    Raises:
        SwarmError: it gave none.
        ApiError: it gave an error that is no fault of the user's.
    """
    see(server)
    client = server.client
    if path not in await client.features():
        return 404, NOT_FOUND
    headers = {"content-type": "application/json"}
    if isinstance(client, ObserveClient):
        headers |= client.credentials()
        data = _named(data, client.models)
    answer = await client.transport.request(
        Request(
            "POST",
            client.url + path,
            body=data,
            headers=headers,
            timeout=ASK_LIMIT,
            repeatable=True,
        )
    )
    if answer.status in (401, 403) or answer.status >= 500:
        raise overloaded(5)
    return answer.status, answer.body


def _named(data: bytes, models: tuple[str, ...]) -> bytes:
    """A body that asks for one of the upstream's own models: ours may have other names."""
    try:
        body = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return data  # the upstream says what is wrong with it
    if not models or body.get("model") in (None, *models):
        return data
    return _encode({**body, "model": models[0]})


def _wanted(body: dict[str, Any]) -> int:
    """Tokens asked for the answer; 0 when the request does not say."""
    found = body.get("max_completion_tokens") or body.get("max_tokens") or 0
    return found if isinstance(found, int) else 0


def _size(request: ChatRequest) -> int:
    """Bytes of what the prompt is made of: a prompt of fewer bytes than tokens there is not."""
    tools = request.body.get("tools")
    return len(_encode(request.messages)) + (len(_encode(tools)) if tools else 0)


def _characters(request: ChatRequest) -> int:
    """Characters of the prompt's texts, without what the chat template adds."""
    return sum(len(content_text(message.get("content"))) for message in request.messages)
