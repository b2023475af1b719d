"""The least that a Python forwarder costs: our HTTP stack and one parse of each body.

    python -m bench.peers.bare PORT UPSTREAM_PORT

uvicorn with uvloop and httptools before our HTTP client. It keeps nothing, scores nothing, has no
routes and forwards a stream as a whole; the difference to our proxy is what the proxy does.
"""

import asyncio
import sys
from typing import Any

import msgspec
import uvicorn

from ajet_swarm.http.transport import HttpTransport, Request
from core.runtime.gc_tuning import tune_gc
from core.runtime.sockets import bind, loop_factory

_HEADERS = {"content-type": "application/json", "authorization": "Bearer none"}


async def serve(port: int, upstream: int) -> None:
    """Forward each request to the upstream until the process is ended."""
    url = f"http://127.0.0.1:{upstream}/v1/chat/completions"

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        request = msgspec.json.decode(body)
        request["model"] = str(request["model"])
        data = msgspec.json.encode(request)
        response = await transport.request(Request("POST", url, 60.0, data, _HEADERS))
        stream = bool(request.get("stream"))
        if not stream:
            msgspec.json.decode(response.body)
        kind = b"text/event-stream" if stream else b"application/json"
        headers = [(b"content-type", kind)]
        headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async with HttpTransport() as transport:
        config = uvicorn.Config(
            app, http="httptools", ws="none", lifespan="off", access_log=False, log_config=None
        )
        sock = bind("127.0.0.1", port, False, setting="PORT")
        tune_gc()
        await uvicorn.Server(config).serve(sockets=[sock])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(int(sys.argv[1]), int(sys.argv[2])))
