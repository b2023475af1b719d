"""The OpenAPI document of the fake vLLM: paths, request fields, errors."""

from typing import Any

import msgspec

from core.version import version

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_POSITIVE: Schema = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
_CONTENT: Schema = {"anyOf": [_TEXT, _OBJECTS, {"type": "null"}]}
_TOKENS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_STOP: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_MESSAGE: Schema = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": _TEXT, "content": _CONTENT, "tool_calls": _OBJECTS},
}
_MESSAGES: Schema = {"type": "array", "minItems": 1, "items": _MESSAGE}
_SAMPLING: dict[str, Schema] = {
    "model": _TEXT,
    "stream": _FLAG,
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "seed": {"type": "integer"},
}
_CHAT: dict[str, Schema] = {
    **_SAMPLING,
    "messages": _MESSAGES,
    "max_tokens": _POSITIVE,
    "max_completion_tokens": _POSITIVE,
    "n": {"type": "integer", "minimum": 1, "maximum": 8},
    "stop": _STOP,
    "tools": _OBJECTS,
    "tool_choice": {"anyOf": [_TEXT, _OBJECT]},
    "parallel_tool_calls": _FLAG,
    "response_format": _OBJECT,
    "stream_options": _OBJECT,
    "logprobs": _FLAG,
    "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
}
_COMPLETION: dict[str, Schema] = {
    **_SAMPLING,
    "prompt": {"anyOf": [*_STOP["anyOf"], _TOKENS, {"type": "array", "items": _TOKENS}]},
    "max_tokens": _POSITIVE,
    "stop": _STOP,
    "echo": _FLAG,
    "logprobs": {"type": "integer", "minimum": 0, "maximum": 5},
}
_RESPONSES: dict[str, Schema] = {
    **_SAMPLING,
    "input": {"anyOf": [_TEXT, _OBJECTS]},
    "instructions": _TEXT,
    "max_output_tokens": _POSITIVE,
    "tools": _OBJECTS,
    "tool_choice": {"anyOf": [_TEXT, _OBJECT]},
    "reasoning": _OBJECT,
    "text": _OBJECT,
    "store": _FLAG,
    "previous_response_id": _TEXT,
}
_ANTHROPIC: dict[str, Schema] = {
    **_SAMPLING,
    "messages": _MESSAGES,
    "max_tokens": _POSITIVE,
    "system": _CONTENT,
    "stop_sequences": {"type": "array", "items": _TEXT},
    "tools": _OBJECTS,
    "tool_choice": _OBJECT,
    "thinking": _OBJECT,
}
_ERRORS = {
    "400": "The request is invalid",
    "401": "The key is missing or wrong",
    "404": "The model or route does not exist",
    "413": "The body is too large",
    "422": "The upstream cannot parse the request",
    "502": "Observe mode: the upstream refuses the configured key or model",
    "503": "Busy, no engine, or no candidate answered; Retry-After gives the seconds to wait",
}


def document() -> bytes:
    """Return the document as JSON."""
    paths: dict[str, Any] = {
        "/v1/chat/completions": _post("Chat completion", _CHAT, ("messages",), stream=True),
        "/v1/completions": _post("Completion of a text", _COMPLETION, ("prompt",), stream=True),
        "/v1/responses": _post("Response", _RESPONSES, ("input",), stream=True),
        "/v1/responses/{response_id}": _get("A stored response", "response_id"),
        "/v1/responses/{response_id}/cancel": {
            "post": _operation("Cancel a stored response", "response_id")
        },
        "/v1/messages": _post("Message", _ANTHROPIC, ("messages", "max_tokens"), stream=True),
        "/v1/messages/count_tokens": _post("Tokens of a prompt", _ANTHROPIC, ("messages",)),
        "/v1/models": _get("All models"),
        "/v1/models/{model}": _get("One model", "model"),
        "/health": _get("Whether requests are accepted"),
        "/ping": {**_get("The same as /health"), "post": _operation("The same as /health")},
        "/load": _get("Number of requests in progress"),
        "/version": _get("Version of this program"),
        "/metrics": _get("Metrics in Prometheus format"),
        "/tokenize": _post("The upstream's tokenizer", {"prompt": _TEXT}, ()),
        "/detokenize": _post("The upstream's tokenizer", {"tokens": _TOKENS}, ()),
    }
    scheme = {"key": {"type": "http", "scheme": "bearer"}}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "ajet-console", "version": version()},
            "paths": paths,
            "components": {"securitySchemes": scheme},
        }
    )


def _post(
    summary: str, fields: dict[str, Schema], required: tuple[str, ...], *, stream: bool = False
) -> Any:
    body = {"type": "object", "required": list(required), "properties": fields}
    operation = _operation(summary)
    operation["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": body}},
    }
    if stream:
        operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": _TEXT}
    return {"post": operation}


def _get(summary: str, parameter: str = "") -> dict[str, Any]:
    return {"get": _operation(summary, parameter)}


def _operation(summary: str, parameter: str = "") -> dict[str, Any]:
    responses: dict[str, Any] = {status: {"description": text} for status, text in _ERRORS.items()}
    responses["200"] = {"description": "The answer", "content": {"application/json": {}}}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if parameter:
        path_parameter = {"name": parameter, "in": "path", "required": True, "schema": _TEXT}
        operation["parameters"] = [path_parameter]
    return operation
