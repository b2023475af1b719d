"""All that a server's own OpenAPI offers, with bodies that fit its schemas and others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings

Keys = Callable[[], Sequence[Mapping[str, str]]]


def fuzz(url: str, examples: int, keys: Keys = lambda: ({},)) -> list[int]:
    """Call each operation; none may answer 5xx.

    Args:
        url: Address of the server.
        examples: Bodies of an operation.
        keys: Gives the headers with which each body is sent: all of them to `/v1/`, else the first.

    Returns:
        The status of each answer.
    """
    import schemathesis  # a quarter of a second, and each worker collects all tests
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    operations: list[Any] = list(schema.get_all_operations())
    assert len(operations) >= 16
    statuses: list[int] = []
    for operation in operations:
        _call(operation.ok(), examples, keys(), statuses)
    return statuses


def _call(
    operation: Any, examples: int, keys: Sequence[Mapping[str, str]], statuses: list[int]
) -> None:
    from schemathesis.checks import not_a_server_error

    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(operation.as_strategy())
    def check(case: Any) -> None:
        for headers in keys if case.path.startswith("/v1/") else keys[:1]:
            checks = [not_a_server_error]
            answer = case.call_and_validate(headers=headers, checks=checks, timeout=20)
            statuses.append(answer.status_code)

    check()
