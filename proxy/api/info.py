"""The informational routes, which start no group: models, health, version, metrics, tokens.

Token routes are forwarded to the upstream if it has them.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.runtime import Runtime
from core.version import version
from proxy.admission.registry import Groups, no_model
from proxy.api.context_window import ask, check_reachable, count_tokens
from proxy.api.metrics import CONTENT_TYPE, RequestMetrics
from proxy.api.prompt_tokens import PromptPrefix, TokenEstimator, prefixes_of
from proxy.context import ProxyContext
from proxy.dialects.messages.request import count_body, read_count, refusal_body
from proxy.dialects.request import ChatRequest
from proxy.dialects.tokenize import check_tokenize, model_of, upstream_error
from proxy.http.asgi import (
    App,
    ClientLeft,
    Receive,
    Scope,
    Send,
    headers_of,
    parse_body,
    read_body,
    send_bytes,
    send_error,
    send_json,
)
from proxy.http.body_budget import BODY_BYTES
from proxy.http.errors import ApiError

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class InfoRoutes:
    """Handlers of the informational routes.

    Args:
        context: The shared parts of the proxy.
        groups: The registry, for models and health.
        metrics: Counters for `/metrics`.
        token_estimator: Estimator for `count_tokens`.
    """

    def __init__(
        self,
        context: ProxyContext,
        groups: Groups,
        metrics: RequestMetrics,
        token_estimator: TokenEstimator,
    ) -> None:
        self._context = context
        self._groups = groups
        self._metrics = metrics
        self._token_estimator = token_estimator
        self._started = context.clock()
        self._max_body_bytes = context.settings.proxy.max_body_mb << 20

    # --- what is served ------------------------------------------------------------------------

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 without a body while a request would be queued and answered."""
        await send_bytes(send, 200 if self._groups.serving else 503, b"", b"")

    async def version(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the version of this program."""
        await send_json(send, 200, _encode({"version": version()}))

    async def load(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the number of requests in progress."""
        await send_json(send, 200, _encode({"server_load": self._metrics.open}))

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return all served model names."""
        cards = [self._card(name) for name in self._groups.models()]
        await send_json(send, 200, _encode({"object": "list", "data": cards}))

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return one model."""
        name, names = scope["path"].removeprefix("/v1/models/"), self._groups.models()
        if name not in names:
            refusal = no_model(name, names)
            await send_error(send, refusal, refusal.body())
            return
        await send_json(send, 200, _encode(self._card(name)))

    def _card(self, name: str) -> dict[str, Any]:
        window = self._groups.context.server_of(name).window
        return model_card(name, self._started, window, self._context.runtime)

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return all metrics in Prometheus's text format."""
        await send_bytes(send, 200, CONTENT_TYPE, self._metrics.text())

    # --- stored responses ----------------------------------------------------------------------

    async def response(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 404 for a stored response, as vLLM does without a store."""
        name = scope["path"].split("/")[3]
        refusal = ApiError(
            404,
            None,
            f"Response with id '{name}' not found.",
            kind="invalid_request_error",
            param="response_id",
        )
        await send_error(send, refusal, refusal.body())

    # --- tokens --------------------------------------------------------------------------------

    async def count_tokens(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the tokens of a Messages prompt by the upstream's tokenizer, else estimate them."""
        headers = headers_of(scope)
        try:
            data = await read_body(headers, receive, self._max_body_bytes, scope.get(BODY_BYTES))
            request, prefixes = await parse_body(data, partial(_read_count, data, headers))
            self._groups.check_model(request.model)
            tokens = None
            if not self._token_estimator.is_exact(request, prefixes):
                tokens = await count_tokens(self._context.server_of(request.model), request)
            if tokens is None:
                tokens = self._token_estimator.estimate(request, prefixes)
            body = count_body(tokens)
        except ClientLeft:
            return
        except ApiError as refusal:
            await send_error(send, refusal, refusal_body(refusal))
            return
        await send_json(send, 200, body)

    def forwarded(self, path: str) -> App:
        """Return a handler that forwards requests such as `/tokenize` to the upstream.

        The response is the upstream's own; 404 if it does not have the route. Errors are converted
        to vLLM's form.
        """

        async def forward(scope: Scope, receive: Receive, send: Send) -> None:
            headers = headers_of(scope)
            try:
                data = await read_body(
                    headers, receive, self._max_body_bytes, scope.get(BODY_BYTES)
                )
                model = await parse_body(data, partial(model_of, data))
                server = self._context.server_of(model)
                check_reachable(server, model)
                has_route = path in await server.client.features()
                if has_route:
                    content_type = headers.get("content-type", "")
                    await parse_body(data, partial(check_tokenize, path, data, content_type))
                status, body = await ask(server, path, data)
                converted = upstream_error(status, body) if has_route and status >= 400 else None
                if converted is not None:
                    raise converted
            except ClientLeft:
                return
            except ApiError as refusal:
                await send_error(send, refusal, refusal.body())
                return
            except SwarmError as error:
                log.info("%s: %s gave no answer: %s", path, server.name, error.what)
                unavailable = server.overloaded(model, 10)
                await send_error(send, unavailable, unavailable.body())
                return
            await send_json(send, status, body)

        return forward


def _read_count(data: bytes, headers: Mapping[str, str]) -> tuple[ChatRequest, list[PromptPrefix]]:
    request = read_count(data, headers, "")
    return request, prefixes_of(request)


def model_card(
    name: str, created: float, max_model_len: int | None, runtime: Runtime
) -> dict[str, Any]:
    """Return one entry of the list of models.

    Args:
        name: Name of the model.
        created: Start of the proxy in Unix seconds.
        max_model_len: Context window in tokens; None if unknown.
        runtime: For the time and the id of the entry.
    """
    now = int(runtime.clock.wall())
    permission = {
        "id": f"modelperm-{runtime.chance.token(8)}",
        "object": "model_permission",
        "created": now,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": int(created),
        "owned_by": "vllm",
        "root": name,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
