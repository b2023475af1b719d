"""POST /v1/chat/completions: the policy behind an episode's key."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from engine.chat import ChatRequest, parse_body, parse_key, stream
from engine.episodes import Episodes

_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def chat_routes(episodes: Episodes) -> APIRouter:
    """The chat route; the body is read by hand because the key is checked first."""
    router = APIRouter()
    schema: dict[str, Any] = {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ChatRequest.model_json_schema()}},
        }
    }

    @router.post("/v1/chat/completions", openapi_extra=schema)
    async def chat_completions(request: Request) -> Response:
        """Answer one call; a stream is sent whole once the answer is there."""
        key = parse_key(request.headers.get("authorization"))
        asked, raw = parse_body(await request.body())

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        answer = await episodes.chat(key, asked, raw, gone)
        if asked.stream:
            return Response(
                stream(answer, asked.model), media_type="text/event-stream", headers=_STREAM_HEADERS
            )
        return JSONResponse(answer)

    return router
