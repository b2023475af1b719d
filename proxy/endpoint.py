"""The HTTP surface of the fake vLLM: the table of paths and their handlers.

A client that retries with the same bytes joins its first request while that one is unanswered. A
request with `n` above 1 gets its n best candidates.
"""

from collections.abc import Mapping

from starlette.applications import Starlette

from proxy.admission.registry import Groups
from proxy.api.handler import RequestHandler
from proxy.api.info import InfoRoutes
from proxy.context import ProxyContext
from proxy.dialects.chat.completions import COMPLETIONS
from proxy.dialects.chat.request import chat_dialect
from proxy.dialects.messages.request import MESSAGES
from proxy.dialects.responses.request import responses
from proxy.dialects.responses.store import ResponseStore
from proxy.http.asgi import App, Receive, Scope, Send, send_json
from proxy.http.openapi import document
from proxy.http.router import Router


def create_app(
    context: ProxyContext,
    groups: Groups,
    control: App | None = None,
    handler: RequestHandler | None = None,
) -> Router:
    """Build the ASGI application.

    Args:
        context: The shared parts of the proxy.
        groups: The registry that admits requests.
        control: The control API.
        handler: Handles the `/v1` requests; a new one when omitted.
    """
    table = _table(context, groups, handler or RequestHandler(context, groups))
    settings = context.settings
    return Router(
        table, control or Starlette(), settings.proxy, allowed_hosts=settings.http.allowed_hosts
    )


def _table(
    context: ProxyContext, groups: Groups, handler: RequestHandler
) -> dict[str, Mapping[str, App]]:
    chat = chat_dialect(context.settings.proxy.reasoning_field)
    responses_api = responses(ResponseStore(), context.runtime.chance)
    info = InfoRoutes(context, groups, handler.metrics, handler.token_estimator)
    return {
        "/v1/chat/completions": {"POST": handler.endpoint(chat)},
        "/v1/completions": {"POST": handler.endpoint(COMPLETIONS)},
        "/v1/responses": {"POST": handler.endpoint(responses_api)},
        "/v1/responses/{}": {"GET": info.response},
        "/v1/responses/{}/cancel": {"POST": info.response},
        "/v1/messages": {"POST": handler.endpoint(MESSAGES)},
        "/v1/messages/count_tokens": {"POST": info.count_tokens},
        "/v1/models": {"GET": info.models},
        "/v1/models/{*}": {"GET": info.model},
        "/health": {"GET": info.health},
        "/ping": {"GET": info.health, "POST": info.health},
        "/load": {"GET": info.load},
        "/version": {"GET": info.version},
        "/metrics": {"GET": info.metrics},
        "/tokenize": {"POST": info.forwarded("/tokenize")},
        "/detokenize": {"POST": info.forwarded("/detokenize")},
        "/openapi.json": {"GET": _openapi()},
    }


def _openapi() -> App:
    body = document()

    async def openapi(scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, body)

    return openapi
