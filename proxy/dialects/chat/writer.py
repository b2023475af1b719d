"""Writer of chat completions in vLLM's format: a complete body, or a stream. No I/O.

The keys, their order and which of them are null match captures of a real server.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.dialects.logprobs import Entry
from core.dialects.request import PublicAnswer, usage_of
from core.dialects.tool_constraints import forces_call
from proxy.dialects.chat.chunks import ChunkWriter, whole_body
from proxy.dialects.request import ChatRequest


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
