"""Writer of chat completions in vLLM's format: a complete body, or a stream. No I/O.

The keys, their order and which of them are null match captures of a real server.

What the streams of chat and legacy completions share: chunks with choices and usage. No I/O.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from core.dialects.errors import ApiError
from core.dialects.request import Entry, PublicAnswer, requested_tokens, usage_of, walk
from core.dialects.writer import Writer, forces_call
from core.version import version
from proxy.dialects.request import ChatRequest

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


def fingerprint() -> str:
    """Return the `system_fingerprint`, which in vLLM's answers is its version."""
    return f"ajet-console-{version()}"


def whole_body(
    head: Mapping[str, Any],
    choices: Sequence[Mapping[str, Any]],
    usage: Mapping[str, Any],
    prompt_fields: Mapping[str, Any],
) -> bytes:
    """Return the JSON body of a response that is not streamed; `prompt_fields` follow the usage."""
    return _encode(
        {
            **head,
            "choices": choices,
            "service_tier": None,
            "system_fingerprint": fingerprint(),
            "usage": usage,
            **prompt_fields,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )


class ChunkWriter(Writer):
    """Writer of chunks, all with the same id, time and model; see `Writer`."""

    id_prefix: ClassVar[str]
    kind: ClassVar[str]
    """The `object` of a chunk."""

    def __init__(self, request: ChatRequest, model: str, created: int) -> None:
        super().__init__(request, model, created)
        self._head = {
            "id": f"{self.id_prefix}-{request.request_id}",
            "object": self.kind,
            "created": created,
            "model": model,
        }
        self.choices = request.n * max(1, len(request.parts))
        self._each = request.n if request.parts else 0
        self._ids = bool(request.body.get("return_token_ids"))
        self._next_fields: dict[str, Any] = {}
        """Extra fields of the next chunk."""

    @abstractmethod
    def _choice(
        self,
        index: int,
        delta: Mapping[str, Any],
        tokens: Sequence[Entry] = (),
        end: PublicAnswer | None = None,
    ) -> dict[str, Any]:
        """Return a choice of a chunk; with `end` the last one of its answer."""

    def keepalive(self) -> bytes:
        """Return an empty chunk."""
        return self._chunk(self._choice(0, {}))

    def error(self, refusal: ApiError) -> bytes:
        """Return the error as the last chunk."""
        return b"data: " + refusal.body() + b"\n\n" + DONE

    def _chunk(
        self,
        choice: Mapping[str, Any] | None,
        prompt: int | None = None,
        completion: int = 0,
        **fields: Any,
    ) -> bytes:
        """Return one chunk, with running usage if it is requested.

        Args:
            choice: Its choice; None for none.
            prompt: Tokens of the prompt; None for their estimated number.
            completion: Tokens of the answer so far.
            fields: Further fields, after the usage.
        """
        request, usage = self._request, {}
        if choice is not None and request.include_usage and request.continuous_usage:
            prompt = request.prompt_tokens if prompt is None else prompt
            counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion}
            usage["usage"] = {**counts, "completion_tokens": completion}
        fields |= self._next_fields
        self._next_fields = {}
        choices = [] if choice is None else [choice]
        return b"data: %s\n\n" % _encode({**self._head, "choices": choices, **usage, **fields})

    def _delta(self, index: int, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()) -> bytes:
        return self._chunk(self._choice(index, delta, tokens))

    def _choice_events(self, index: int, answer: PublicAnswer) -> Iterator[bytes]:
        """Yield all chunks of one choice; after a token limit, the last one has the last text."""
        parts, rest = walk(answer, requested_tokens(self._request, answer))
        last: dict[str, Any] = {}
        if answer.finish_reason == "length" and parts and "tool_calls" not in parts[-1][0]:
            last, tokens = parts.pop()
            rest = [*tokens, *rest]
        all_chars = sum(_length(delta) for delta, _ in parts)
        prompt, total = answer.usage["prompt_tokens"], answer.usage["completion_tokens"]
        sent_chars = 0
        for delta, tokens in parts:
            sent_chars += _length(delta)
            # an estimate; the last token comes with the end
            so_far = max(total - 1, 0) * sent_chars // max(all_chars, 1)
            yield self._chunk(self._choice(index, delta, tokens), prompt, so_far)
        yield self._closing(index, answer, rest, last)

    def _closing(
        self,
        index: int,
        answer: PublicAnswer,
        tokens: Sequence[Entry],
        delta: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = self._choice(index, delta or {}, tokens, answer)
        usage = answer.usage
        mark = {} if self._request.include_usage else {"system_fingerprint": fingerprint()}
        return self._chunk(choice, usage["prompt_tokens"], usage["completion_tokens"], **mark)

    def _end(self, answers: Sequence[PublicAnswer]) -> bytes:
        """Return the end of the stream; choices without an answer end with `abort`."""
        end = b""
        for index in range(len(answers), self.choices):
            aborted = {"finish_reason": "abort", "stop_reason": None}
            end += self._chunk(self._choice(index, {}) | aborted)
        if self._request.include_usage:
            usage = usage_of(answers, self._each)
            known = {key: value for key, value in usage.items() if value is not None}
            end += self._chunk(None, usage=known, system_fingerprint=fingerprint())
        return end + DONE


def _length(delta: Mapping[str, Any]) -> int:
    """Return the number of characters in a delta."""
    for call in delta.get("tool_calls") or ():
        return len(call["function"].get("arguments") or call["function"].get("name") or "")
    return sum(len(text) for text in delta.values() if text)


class ChatWriter(ChunkWriter):
    """Writer of the response to one chat request; see `ChunkWriter`.

    Args:
        request: The request.
        model: The model name in the response.
        created: Time of the response in Unix seconds.
        reasoning: Name of the field that holds the reasoning.
    """

    id_prefix, kind = "chatcmpl", "chat.completion.chunk"

    def __init__(
        self, request: ChatRequest, model: str, created: int, reasoning: str = "reasoning"
    ) -> None:
        super().__init__(request, model, created)
        self._field = reasoning

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body; its fields about the prompt are those of the first answer."""
        answers = self._shown(winners)
        first = answers[0] if answers else None
        prompt_fields = {
            "prompt_logprobs": first.prompt_logprobs if first else None,
            "prompt_token_ids": first.prompt_token_ids if first and self._ids else None,
            "prompt_text": first.prompt_text if first else None,
        }
        choices = [self._whole(index, answer) for index, answer in enumerate(answers)]
        head = {**self._head, "object": "chat.completion"}
        return whole_body(head, choices, usage_of(answers), prompt_fields)

    def _whole(self, index: int, answer: PublicAnswer) -> dict[str, Any]:
        content = answer.content
        if content is None and answer.tool_calls and forces_call(self._request):
            content = ""
        calls = {"tool_calls": answer.tool_calls} if answer.tool_calls else {}
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": content,
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                **calls,
                self._field: answer.reasoning,
            },
            "logprobs": answer.logprobs if self._request.body.get("logprobs") else None,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
            "token_ids": answer.token_ids if self._ids else None,
            "routed_experts": None,
        }

    def opening(self) -> bytes:
        """Return the role chunks of all choices."""
        delta = {"role": "assistant", "content": ""}
        choice = {"delta": delta, "logprobs": None, "finish_reason": None}
        return b"".join(
            self._chunk({"index": index, **choice}, prompt_token_ids=None, prompt_text=None)
            for index in range(self.choices)
        )

    def _shown(self, winners: Sequence[PublicAnswer]) -> list[PublicAnswer]:
        answers = super()._shown(winners)
        if self._ids and answers and (ids := answers[0].prompt_token_ids) is not None:
            self._next_fields = {"prompt_token_ids": ids}
        return answers

    def _choice(
        self,
        index: int,
        delta: Mapping[str, Any],
        tokens: Sequence[Entry] = (),
        end: PublicAnswer | None = None,
    ) -> dict[str, Any]:
        if "reasoning" in delta:
            delta = {self._field: delta["reasoning"]}
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": {"content": tokens} if tokens else None,
            "finish_reason": None if end is None else end.finish_reason,
        }
        if end is not None:
            choice["stop_reason"] = end.stop_reason
        choice["token_ids"] = end.token_ids if end is not None and self._ids else None
        return choice
