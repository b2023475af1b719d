"""Writer of OpenAI Responses in vLLM's format: a complete object, or a stream. No I/O.

The keys, their order and which of them are null match captures of a real server. An answer that a
limit ended has the status `incomplete` but ends with `response.completed`, as in vLLM: agents treat
the event `response.incomplete` as an error and send the request again.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.runtime import Chance
from core.dialects.errors import ApiError
from core.dialects.request import DialectRequest, Entry, PublicAnswer, requested_tokens
from core.dialects.responses.input import ResponseStore
from core.dialects.responses.output import ItemStream, ResponseFields, logprob_of
from core.dialects.responses.tools import ToolTable
from core.dialects.writer import Writer, blocks

_encode = msgspec.json.Encoder().encode

LOGPROBS = "message.output_text.logprobs"
"""Value of `include` that requests log probabilities."""
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")
_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reason -> `incomplete_details.reason` of the response."""


class ResponseWriter(Writer):
    """Writer of the response to one Responses request, with `ResponseFields` in its `extra`; see
    `Writer`.

    Args:
        request: The request.
        model: The model name in the response.
        created: Time of the response in Unix seconds.
        store: Store of output items to which the client may refer.
        chance: Source of their ids.
    """

    fills_silence = False  # a keepalive repeats the request's fields

    def __init__(
        self,
        request: DialectRequest,
        model: str,
        created: int,
        store: ResponseStore,
        chance: Chance,
    ) -> None:
        super().__init__(request, model, created)
        self._store = store
        self._fields: ResponseFields = request.extra
        self._items = ItemStream(request.extra, chance)

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body of the response; after a stream the one that it ended with."""
        (answer,) = self._shown(winners)
        for block in blocks(answer) if not self._items.output else ():
            self._items.add_whole(block)
        return self._final_response(answer)

    def opening(self) -> bytes:
        """Return the first events, sent at admission."""
        created = self._items.response_event("created", self._response("in_progress"))
        return created + self.keepalive()

    def keepalive(self) -> bytes:
        """Return `response.in_progress`."""
        return self._items.response_event("in_progress", self._response("in_progress"))

    def error(self, refusal: ApiError) -> bytes:
        """Return `response.failed`."""
        failed = self._response("failed", output=self._items.output, error=failure(refusal))
        return self._items.response_event("failed", failed)

    def _shown(self, winners: Sequence[PublicAnswer]) -> list[PublicAnswer]:
        answers = super()._shown(winners)
        entries = requested_tokens(self._request, answers[0])
        self._items.logprobs = list(map(logprob_of, entries)) if entries else None
        return answers

    def _delta(self, index: int, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()) -> bytes:
        return self._items.delta(delta, tokens)

    def _end(self, answers: Sequence[PublicAnswer]) -> bytes:
        """Close the open item and the response."""
        end = self._items.close()
        return end + self._items.response_event("completed", self._final_response(answers[0]))

    # --- the response -----------------------------------------------------------------------------

    def _final_response(self, winner: PublicAnswer) -> bytes:
        if self._fields.store:
            for item in self._items.output:
                self._store.put(item)
        cut = _CUT.get(winner.finish_reason)
        return self._response(
            "incomplete" if cut else "completed",
            output=self._items.output,
            usage=usage_of(winner),
            incomplete_details={"reason": cut} if cut else None,
            **winner.extension,
        )

    def _response(
        self, status: str, *, error: Mapping[str, str] | None = None, **fields: Any
    ) -> bytes:
        """Return the response; `fields` are those that change while it is written."""
        response: dict[str, Any] = {
            "id": self._fields.response_id,
            "created_at": self._created,
            **self._fields.echo,
            "model": self._model,
            "status": status,
            **fields,
        }
        if error is not None:
            response["error"] = error
        return _encode(response)


# --- usage and errors ---------------------------------------------------------------------------


def usage_of(winner: PublicAnswer) -> dict[str, Any]:
    """Return the usage of the winner only.

    An unknown number of reasoning tokens is reported as 0, because clients require a number.
    """
    usage = winner.usage
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    prompt_details = usage.get("prompt_tokens_details") or {}
    completion_details = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": prompt_details.get("cached_tokens") or 0,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": completion,
        "output_tokens_details": {
            "reasoning_tokens": completion_details.get("reasoning_tokens") or 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": prompt + completion,
    }


def failure(refusal: ApiError) -> dict[str, str]:
    """Return the `error` of a failed response, with codes to which agents react correctly.

    Codex gives up on `invalid_prompt`, compacts the conversation on `context_length_exceeded`,
    waits for the time in the message on `rate_limit_exceeded`, and retries on any other code.
    """
    message = refusal.message
    if refusal.status in (429, 503) and refusal.retry_after is not None and refusal.is_overload:
        text = f"{message} Please try again in {refusal.retry_after}s."
        return {"code": "rate_limit_exceeded", "message": text}
    if "maximum context length" in message:
        return {"code": "context_length_exceeded", "message": message}
    code = "invalid_prompt" if refusal.status < 500 else "server_error"
    return {"code": code, "message": message}


# --- what the response repeats ------------------------------------------------------------------


def response_fields(body: Mapping[str, Any], tools: ToolTable, name: str) -> ResponseFields:
    """Return what the response repeats of a request.

    Args:
        body: The checked body.
        tools: Its tools.
        name: The id of the response if the body has none.
    """
    own = body.get("request_id")
    own = _UNPRINTABLE.sub("", own)[:128] if isinstance(own, str) else ""
    default = "auto" if tools.echoed else "none"
    logprobs = LOGPROBS in (body.get("include") or ())
    echo = {
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata"),
        "model": "",
        "object": "response",
        "output": (),
        "parallel_tool_calls": _or(body.get("parallel_tool_calls"), True),
        "temperature": _float(body.get("temperature"), 1.0),
        "tool_choice": _or(body.get("tool_choice"), default) if tools.echoed else default,
        "tools": tools.echoed,
        "top_p": _float(body.get("top_p"), 1.0),
        "background": False,
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "previous_response_id": None,
        "prompt": None,
        "reasoning": body.get("reasoning"),
        "service_tier": body.get("service_tier") or "auto",
        "status": "",
        "text": body.get("text"),
        "top_logprobs": body.get("top_logprobs") or 0 if logprobs else None,
        "truncation": body.get("truncation") or "disabled",
        "usage": None,
        "user": body.get("user"),
        "presence_penalty": _float(body.get("presence_penalty"), 0.0),
        "frequency_penalty": _float(body.get("frequency_penalty"), 0.0),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }
    return ResponseFields(
        response_id=own or f"resp_{name}",
        echo={key: msgspec.Raw(_encode(value)) for key, value in echo.items()},
        names=tools.names,
        custom=frozenset(tools.custom),
        store=body.get("store") is not False,
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _float(value: float | None, default: float) -> float:
    if value is None:
        return default
    return float(value) if abs(value) < 1 << 53 else value  # larger integers stay exact
