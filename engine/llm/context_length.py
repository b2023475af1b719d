"""The refusal of a prompt over the window, in vLLM's words."""

from engine.server.lifecycle import EngineError


def too_long(window: int, prompt_tokens: int, limit: int, *, named: bool) -> EngineError:
    """Return the 400 for a prompt that leaves no room for its answer.

    Args:
        window: Tokens of prompt and answer together.
        prompt_tokens: Tokens of the whole prompt; 0 when they were not counted.
        limit: Maximum number of tokens of the answer.
        named: The request names this number; otherwise the job does.
    """
    requested = limit if named or prompt_tokens < window else 0
    contains = "more input tokens than fit in it"
    detail, reducible = "", "input prompt"
    if prompt_tokens:
        contains = f"{prompt_tokens} input tokens"
        detail = f" (parameter=input_tokens, value={prompt_tokens})"
        if requested:
            total = prompt_tokens + requested
            contains = f"at least {contains}, for a total of at least {total} tokens"
    answer = ""
    if requested:
        answer = f"you requested {requested} output tokens and "
        reducible += " or the number of requested output tokens"
    return EngineError(
        400,
        f"This model's maximum context length is {window} tokens. However, {answer}your prompt "
        f"contains {contains}. Please reduce the length of the {reducible}.{detail}",
    )
