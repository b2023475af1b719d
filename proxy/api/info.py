"""The informational routes, which start no group: models, health, version, metrics, tokens.

Token routes are forwarded to the upstream if it has them.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.runtime import Runtime
from core.dialects.errors import ApiError
from core.version import version
from proxy.admission.registry import no_model
from proxy.api.context_window import ask, check_reachable, count_tokens
from proxy.api.handler import RequestHandler
from proxy.api.metrics import CONTENT_TYPE
from proxy.api.prompt_tokens import PromptPrefix, prefixes_of
from proxy.dialects.messages import count_body, read_count, refusal_body
from proxy.dialects.request import ChatRequest
from proxy.dialects.tokenize import check_tokenize, model_of, upstream_error
from proxy.http.exchange import error_response, json_response, parse, read_body, while_connected

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class InfoRoutes:
    """The informational routes.

    Args:
        handler: Handler of the requests, with the registry, the counters and the estimator.
    """

    def __init__(self, handler: RequestHandler) -> None:
        self._context, self._groups = handler.context, handler.groups
        self._metrics, self._token_estimator = handler.metrics, handler.token_estimator
        self._started = handler.context.clock()

    # --- what is served ------------------------------------------------------------------------

    async def health(self) -> Response:
        """Answer 200 without a body while a request would be queued and answered."""
        return Response(status_code=200 if self._groups.serving else 503)

    async def version(self) -> Response:
        """Return the version of this program."""
        return json_response(_encode({"version": version()}))

    async def load(self) -> Response:
        """Return the number of requests in progress."""
        return json_response(_encode({"server_load": self._metrics.open}))

    async def models(self) -> Response:
        """Return all served model names."""
        cards = [self._card(name) for name in self._groups.models()]
        return json_response(_encode({"object": "list", "data": cards}))

    async def model(self, model: str) -> Response:
        """Return one model."""
        names = self._groups.models()
        if model not in names:
            raise no_model(model, names)
        return json_response(_encode(self._card(model)))

    def _card(self, name: str) -> dict[str, Any]:
        window = self._groups.context.server_of(name).window
        return model_card(name, self._started, window, self._context.runtime)

    async def metrics(self) -> Response:
        """Return all metrics in Prometheus's text format."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE.decode())

    async def response(self, response_id: str) -> Response:
        """Answer 404 for a stored response, as vLLM does without a store."""
        text = f"Response with id '{response_id}' not found."
        raise ApiError(404, None, text, kind="invalid_request_error", param="response_id")

    # --- tokens --------------------------------------------------------------------------------

    async def count_tokens(self, request: Request) -> Response:
        """Count the tokens of a Messages prompt by the upstream's tokenizer, else estimate them."""
        try:
            chat, prefixes = await read_body(request, partial(_read_count, request.headers))
            self._groups.check_model(chat.model)
            tokens = None
            if not self._token_estimator.is_exact(chat, prefixes):
                async with while_connected(request.receive):
                    tokens = await count_tokens(self._context.server_of(chat.model), chat)
            if tokens is None:
                tokens = self._token_estimator.estimate(chat, prefixes)
            return json_response(count_body(tokens))
        except ApiError as refusal:
            return error_response(refusal, refusal_body(refusal))

    def forwarded(self, path: str) -> Callable[[Request], Awaitable[Response]]:
        """Return a route that forwards requests such as `/tokenize` to the upstream.

        The response is the upstream's own; 404 if it does not have the route. Errors are converted
        to vLLM's form.
        """

        async def forward(request: Request) -> Response:
            data, model = await read_body(request, lambda data: (data, model_of(data)))
            server = self._context.server_of(model)
            check_reachable(server, model)
            try:
                async with while_connected(request.receive):
                    has_route = path in await server.client.features()
                    if has_route:
                        kind = request.headers.get("content-type", "")
                        await parse(data, partial(check_tokenize, path, content_type=kind))
                    status, body = await ask(server, path, data)
            except SwarmError as error:
                log.info("%s: %s gave no answer: %s", path, server.name, error.what)
                raise server.overloaded(model, 10) from None
            if has_route and status >= 400 and (converted := upstream_error(status, body)):
                raise converted
            return json_response(body, status)

        return forward


def _read_count(headers: Mapping[str, str], data: bytes) -> tuple[ChatRequest, list[PromptPrefix]]:
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
