"""The public interface of parts keeps its earlier names."""

import pytest

from proxy.rewards import part


@pytest.mark.parametrize(("earlier", "present"), sorted(part._RENAMED.items()))
def test_an_earlier_name_is_the_present_class_and_warns(earlier: str, present: str) -> None:
    with pytest.warns(DeprecationWarning, match=present):
        assert getattr(part, earlier) is getattr(part, present)


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        part.Nonsense  # type: ignore[attr-defined]  # noqa: B018 - that it raises is the test
