"""Writer of OpenAI Responses in vLLM's format: a complete object, or a stream. No I/O.

The keys, their order and which of them are null match captures of a real server. An answer that a
limit ended has the status `incomplete` but ends with `response.completed`, as in vLLM: agents treat
the event `response.incomplete` as an error and send the request again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.runtime import Chance
from proxy.dialects.logprobs import Entry, token_entries
from proxy.dialects.request import ChatRequest, PublicAnswer
from proxy.dialects.responses.output import OutputItem
from proxy.dialects.responses.store import ResponseStore
from proxy.dialects.writer import Block, BlockWriter, blocks, event_bytes
from proxy.http.errors import ApiError, EngineOffline, ProxyStopping

_encode = msgspec.json.Encoder().encode

_TYPES = {"reasoning": "reasoning", "content": "message"}
"""Kind of block -> type of its item."""
_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reason -> `incomplete_details.reason` of the response."""


_FIELDS: dict[str, Any] = {
    "incomplete_details": None,
    "instructions": None,
    "metadata": None,
    "model": "",
    "object": "response",
    "output": (),
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "none",
    "tools": (),
    "top_p": 1.0,
    "background": False,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "service_tier": "auto",
    "status": "",
    "text": None,
    "top_logprobs": None,
    "truncation": "disabled",
    "usage": None,
    "user": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "kv_transfer_params": None,
    "ec_transfer_params": None,
    "input_messages": None,
    "output_messages": None,
}
"""The fields of a response after its id and time, in their order, and their values for an empty
request."""


class ResponseFields(msgspec.Struct, frozen=True):
    """The data of a request that its response needs."""

    response_id: str
    echo: dict[str, msgspec.Raw]
    """The fields that the response repeats, as JSON."""
    names: dict[str, tuple[str, str | None]]
    """The upstream's name of a tool -> its own name and its namespace."""
    custom: frozenset[str]
    """The upstream's names of tools that take free text."""
    logprobs: bool = False
    """Whether log probabilities are requested."""
    store: bool = True
    """Whether the client may refer to the output items later."""


class ResponseWriter(BlockWriter):
    """Writer of the response to one Responses request, with `ResponseFields` in its `extra`; see
    `BlockWriter`.

    Args:
        request: The request.
        model: The model name in the response.
        created: Time of the response in Unix seconds.
        store: Store of output items to which the client may refer.
        chance: Source of their ids.
    """

    def __init__(
        self,
        request: ChatRequest,
        model: str,
        created: int,
        store: ResponseStore,
        chance: Chance,
    ) -> None:
        super().__init__(request, model, created)
        self._store = store
        self._chance = chance
        self._fields: ResponseFields = request.extra
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._logprobs: list[dict[str, Any]] | None = None

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body of a response that is not streamed."""
        (answer,) = self._shown(winners)
        for block in blocks(answer):
            item = self._item(block)
            item.give_id(self._chance)
            status = {"status": None} if block.kind == "reasoning" else {}
            self._output.append(item.as_json() | status)
        return self._final_response(answer)

    def opening(self) -> bytes:
        """Return the first events, sent at admission."""
        created = self._response_event("response.created", self._response("in_progress"))
        return created + self.keepalive()

    def keepalive(self) -> bytes:
        """Return `response.in_progress`."""
        return self._response_event("response.in_progress", self._response("in_progress"))

    def error(self, refusal: ApiError) -> bytes:
        """Return `response.failed`."""
        failed = self._response("failed", output=self._output, error=failure(refusal))
        return self._response_event("response.failed", failed)

    def _shown(self, winners: Sequence[PublicAnswer]) -> list[PublicAnswer]:
        (answer,) = answers = super()._shown(winners)
        entries = token_entries(answer.logprobs) if self._fields.logprobs else []
        self._logprobs = list(map(_logprob, entries)) if entries else None
        return answers

    def _end(self, answers: Sequence[PublicAnswer]) -> bytes:
        """Close the open item and the response."""
        end = self._close()
        return end + self._response_event("response.completed", self._final_response(answers[0]))

    # --- the response -----------------------------------------------------------------------------

    def _final_response(self, winner: PublicAnswer) -> bytes:
        if self._fields.store:
            for item in self._output:
                self._store.put(item)
        cut = _CUT.get(winner.finish_reason)
        return self._response(
            "incomplete" if cut else "completed",
            output=self._output,
            usage=usage_of(winner),
            incomplete_details={"reason": cut} if cut else None,
        )

    def _response(
        self, status: str, *, error: Mapping[str, str] | None = None, **fields: Any
    ) -> bytes:
        """Return the response; `fields` are those that change while it is written."""
        response: dict[str, Any] = {
            "id": self._fields.response_id,
            "created_at": self._created,
            **_FIELDS,
            "model": self._model,
            **self._fields.echo,
            "status": status,
            **fields,
        }
        if error is not None:
            response["error"] = error
        return _encode(response)

    # --- the events -------------------------------------------------------------------------------

    def _item(self, block: Block) -> OutputItem:
        if block.kind != "call":
            return OutputItem(block, _TYPES[block.kind], logprobs=self._logprobs)
        kind = "custom_tool_call" if block.name in self._fields.custom else "function_call"
        name, namespace = self._fields.names.get(block.name, (block.name, None))
        return OutputItem(msgspec.structs.replace(block, name=name), kind, namespace)

    def _start(self, block: Block) -> bytes:
        item = self._item(block)
        item.give_id(self._chance)
        block.id = item.block.id
        return self._events(item.opening_events())

    def _add(self, block: Block, text: str, tokens: Sequence[Entry]) -> bytes:
        logprobs = list(map(_logprob, tokens))
        if not logprobs and not block.text:  # the tokens do not match the texts
            logprobs = self._logprobs or []
        return self._events(self._item(block).delta_events(text, logprobs))

    def _stop(self, block: Block) -> bytes:
        without = block.kind == "call" and not block.text
        item = self._item(block)
        self._output.append(item.as_json())
        empty = self._events(item.delta_events("{}", ())) if without else b""
        return empty + self._events(item.closing_events())

    def _events(self, events: Iterable[dict[str, Any]]) -> bytes:
        return b"".join([self._event(event) for event in events])

    def _response_event(self, kind: str, response: bytes) -> bytes:
        return self._event({"response": msgspec.Raw(response), "sequence_number": -1, "type": kind})

    def _event(self, event: dict[str, Any]) -> bytes:
        event["sequence_number"] = self._number
        self._number += 1
        return event_bytes(event["type"], _encode(event))


# --- usage, errors, log probabilities -----------------------------------------------------------


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
    if isinstance(refusal, ProxyStopping | EngineOffline):
        return {"code": "server_error", "message": refusal.message}
    if refusal.status in (429, 503) and refusal.retry_after is not None:
        text = f"{message} Please try again in {refusal.retry_after}s."
        return {"code": "rate_limit_exceeded", "message": text}
    if "maximum context length" in message:
        return {"code": "context_length_exceeded", "message": message}
    code = "invalid_prompt" if refusal.status < 500 else "server_error"
    return {"code": code, "message": message}


def _logprob(entry: Any) -> dict[str, Any]:
    entry = entry if isinstance(entry, dict) else {}
    tops = entry.get("top_logprobs")
    return _token(entry) | {"top_logprobs": [_token(top) for top in tops or () if top]}


def _token(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "token": entry.get("token", ""),
        "bytes": entry.get("bytes") or [],
        "logprob": entry.get("logprob", 0.0),
    }
