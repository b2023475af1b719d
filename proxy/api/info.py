"""The routes that tell facts and start no group: models, health, version, metrics, tokens.

What only the upstream can know is asked of it where it has the route.
"""

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from ajet_swarm.protocol.errors import SwarmError
from core.version import version
from proxy.admission.models import check_model, model_card, model_list, no_model
from proxy.admission.registry import Groups
from proxy.api.context_window import ask, count, see
from proxy.api.metrics import RequestMetrics
from proxy.api.prometheus import CONTENT_TYPE
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
    """Answers for one proxy.

    Args:
        context: The proxy's shared parts.
        groups: Knows what is served and how it is.
        meter: What `/metrics` tells.
        gauge: What `count_tokens` tells.
    """

    def __init__(
        self, context: ProxyContext, groups: Groups, meter: RequestMetrics, gauge: TokenEstimator
    ) -> None:
        self._context = context
        self._groups = groups
        self._meter = meter
        self._gauge = gauge
        self._started = time.time()
        self._largest = context.settings.proxy.max_body_mb << 20

    # --- what is served ------------------------------------------------------------------------

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 without a body while a request would be queued and answered."""
        await send_bytes(send, 200 if self._groups.serving else 503, b"", b"")

    async def version(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the version of this program."""
        await send_json(send, 200, _encode({"version": version()}))

    async def load(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the number of requests in progress."""
        await send_json(send, 200, _encode({"server_load": self._meter.open}))

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return all served model names."""
        cards = [self._card(name) for name in self._groups.models()]
        await send_json(send, 200, model_list(cards))

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return one model."""
        name, names = scope["path"].removeprefix("/v1/models/"), self._groups.models()
        if name not in names:
            refusal = no_model(name, names)
            await send_error(send, refusal, refusal.body())
            return
        await send_json(send, 200, _encode(self._card(name)))

    def _card(self, name: str) -> dict[str, Any]:
        return model_card(name, self._started, self._groups.context_of(name))

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return the metrics for a Prometheus server."""
        groups, context = self._groups, self._context
        engines = {name: server.watcher.current for name, server in context.servers.items()}
        text = self._meter.text(context.bus.state, groups.models()[0], groups.waiting, engines)
        await send_bytes(send, 200, CONTENT_TYPE, text)

    # --- responses: nothing is stored ----------------------------------------------------------

    async def response(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 404 for a stored response, as vLLM does with its store off."""
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

    async def count(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the tokens of a Messages prompt: by the upstream if it can, else by an estimate."""
        headers = headers_of(scope)
        try:
            data = await read_body(headers, receive, self._largest, scope.get(BODY_BYTES))
            request, marks = await parse_body(data, partial(_read_count, data, headers))
            check_model(self._context.settings, request.model, self._groups.models())
            tokens = None
            if not self._gauge.knows(request, marks):
                tokens = await count(self._context.server_of(request.model), request)
            if tokens is None:
                tokens = self._gauge.estimate(request, marks)
            body = count_body(tokens)
        except ClientLeft:
            return
        except ApiError as refusal:
            await send_error(send, refusal, refusal_body(refusal))
            return
        await send_json(send, 200, body)

    def passing(self, path: str) -> App:
        """`/tokenize` and its kin: the upstream's own answer, 404 where it has no such route.

        Errors have vLLM's shape, whatever the upstream's is.
        """

        async def passed(scope: Scope, receive: Receive, send: Send) -> None:
            headers = headers_of(scope)
            try:
                data = await read_body(headers, receive, self._largest, scope.get(BODY_BYTES))
                model = await parse_body(data, partial(model_of, data))
                server = self._context.server_of(model)
                see(server, model)
                there = path in await server.client.features()
                if there:
                    kind = headers.get("content-type", "")
                    await parse_body(data, partial(check_tokenize, path, data, kind))
                status, body = await ask(server, path, data)
                if there and status >= 400 and (no := upstream_error(status, body)) is not None:
                    raise no
            except ClientLeft:
                return
            except ApiError as refusal:
                await send_error(send, refusal, refusal.body())
                return
            except SwarmError as error:
                log.info("%s: %s gave no answer: %s", path, server.name, error.what)
                no_answer = server.overloaded(model, 10)
                await send_error(send, no_answer, no_answer.body())
                return
            await send_json(send, status, body)

        return passed


def _read_count(data: bytes, headers: Mapping[str, str]) -> tuple[ChatRequest, list[PromptPrefix]]:
    request = read_count(data, headers, "")
    return request, prefixes_of(request)
