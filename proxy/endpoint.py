"""The HTTP surface of the fake vLLM: its routes.

A client that retries with the same bytes joins its first request while that one is unanswered. A
request with `n` above 1 gets its n best candidates.
"""

from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.types import ASGIApp

from core.dialects.responses.input import ResponseStore
from core.dialects.schemas import (
    ChatCompletionRequest,
    CompletionRequest,
    CountTokensRequest,
    DetokenizeRequest,
    MessagesRequest,
    ResponsesRequest,
    TokenizeRequest,
    body,
    schemas,
    streamed,
)
from proxy.admission.registry import Groups
from proxy.api.handler import RequestHandler
from proxy.api.info import InfoRoutes
from proxy.context import ProxyContext
from proxy.dialects.chat.completions import COMPLETIONS
from proxy.dialects.chat.request import chat_dialect
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import responses
from proxy.http.app import ProxyApp

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request is invalid"},
    401: {"description": "The key is missing or wrong"},
    404: {"description": "The model or route does not exist"},
    413: {"description": "The body is too large"},
    422: {"description": "The upstream cannot parse the request"},
    502: {"description": "Observe mode: the upstream refuses the configured key or model"},
    503: {"description": "Busy, no engine, or no candidate; Retry-After gives the seconds to wait"},
}


def create_app(
    context: ProxyContext,
    groups: Groups,
    control: ASGIApp | None = None,
    handler: RequestHandler | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        context: The shared parts of the proxy.
        groups: The registry that admits requests.
        control: The control API.
        handler: Handles the `/v1` requests; a new one when omitted.
    """
    settings = context.settings
    handler = handler or RequestHandler(context, groups)
    info = InfoRoutes(handler)
    chat = handler.endpoint(chat_dialect(settings.proxy.reasoning_field))
    text, message = handler.endpoint(COMPLETIONS), handler.endpoint(MESSAGES)
    response = handler.endpoint(responses(ResponseStore(), context.runtime.chance))
    app = ProxyApp(settings, control or Starlette(), schemas())

    def add(method: str, path: str, route: Any, summary: str, more: Any = None) -> None:
        app.add_api_route(
            path,
            route,
            methods=[method],
            summary=summary,
            responses=_ERRORS,
            openapi_extra=more,
        )

    add("POST", "/v1/chat/completions", chat, "Chat completion", streamed(ChatCompletionRequest))
    add("POST", "/v1/completions", text, "Completion of a text", streamed(CompletionRequest))
    add("POST", "/v1/responses", response, "Response", streamed(ResponsesRequest))
    add("GET", "/v1/responses/{response_id}", info.response, "A stored response")
    add("POST", "/v1/responses/{response_id}/cancel", info.response, "Cancel a stored response")
    add("POST", "/v1/messages", message, "Message", streamed(MessagesRequest))
    count = body(CountTokensRequest)
    add("POST", "/v1/messages/count_tokens", info.count_tokens, "Tokens of a prompt", count)
    add("GET", "/v1/models", info.models, "All models")
    add("GET", "/v1/models/{model:path}", info.model, "One model")
    add("GET", "/health", info.health, "Whether requests are accepted")
    add("GET", "/ping", info.health, "The same as /health")
    add("POST", "/ping", info.health, "The same as /health")
    add("GET", "/load", info.load, "Number of requests in progress")
    add("GET", "/version", info.version, "Version of this program")
    add("GET", "/metrics", info.metrics, "Metrics in Prometheus format")
    for path, kind in (("/tokenize", TokenizeRequest), ("/detokenize", DetokenizeRequest)):
        add("POST", path, info.forwarded(path), "The upstream's tokenizer", body(kind))
    return app
