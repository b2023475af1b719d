"""The fake vLLM's HTTP surface: which path is answered by what.

A client's retry with the same bytes joins its first request as long as that is not answered; a
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
from proxy.dialects.responses.request import RESPONSES
from proxy.http.asgi import App, Receive, Scope, Send, send_json
from proxy.http.openapi import document
from proxy.http.router import Router


def create_app(
    context: ProxyContext,
    groups: Groups,
    control: App | None = None,
    desk: RequestHandler | None = None,
) -> Router:
    """The application.

    Args:
        context: The proxy's shared parts.
        groups: Where requests go.
        control: The control API.
        desk: Where requests are answered; one of its own when left out.
    """
    table = _table(context, groups, desk or RequestHandler(context, groups))
    return Router(table, control or Starlette(), context.settings.proxy)


def _table(
    context: ProxyContext, groups: Groups, desk: RequestHandler
) -> dict[str, Mapping[str, App]]:
    chat = chat_dialect(context.settings.proxy.reasoning_field)
    facts = InfoRoutes(context, groups, desk.meter, desk.gauge)
    return {
        "/v1/chat/completions": {"POST": desk.endpoint(chat)},
        "/v1/completions": {"POST": desk.endpoint(COMPLETIONS)},
        "/v1/responses": {"POST": desk.endpoint(RESPONSES)},
        "/v1/responses/{}": {"GET": facts.response},
        "/v1/responses/{}/cancel": {"POST": facts.response},
        "/v1/messages": {"POST": desk.endpoint(MESSAGES)},
        "/v1/messages/count_tokens": {"POST": facts.count},
        "/v1/models": {"GET": facts.models},
        "/v1/models/{*}": {"GET": facts.model},
        "/health": {"GET": facts.health},
        "/ping": {"GET": facts.health, "POST": facts.health},
        "/load": {"GET": facts.load},
        "/version": {"GET": facts.version},
        "/metrics": {"GET": facts.metrics},
        "/tokenize": {"POST": facts.passing("/tokenize")},
        "/detokenize": {"POST": facts.passing("/detokenize")},
        "/openapi.json": {"GET": _openapi()},
    }


def _openapi() -> App:
    told = document()

    async def openapi(scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, told)

    return openapi
