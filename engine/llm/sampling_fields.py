"""Sampling fields that all three API forms share: penalties, `top_k` and `min_p`."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator
from pydantic_core import PydanticCustomError

Finite = Annotated[float, Field(allow_inf_nan=False)]


class SamplingFields(BaseModel):
    """Penalties and bounds of one request, with vLLM's ranges and its words for a value that is out
    of them."""

    presence_penalty: Finite | None = None
    frequency_penalty: Finite | None = None
    repetition_penalty: Finite | None = None
    top_k: int | None = None
    min_p: Finite | None = None

    @field_validator("presence_penalty", "frequency_penalty")
    @classmethod
    def _check_penalty(cls, value: float | None, info: Any) -> float | None:
        if value is not None and not -2 <= value <= 2:
            raise _refusal(f"{info.field_name} must be in [-2, 2], got {value}.")
        return value

    @field_validator("repetition_penalty")
    @classmethod
    def _check_repetition(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise _refusal(f"repetition_penalty must be greater than zero, got {value}.")
        return value

    @field_validator("top_k")
    @classmethod
    def _check_top_k(cls, value: int | None) -> int | None:
        if value is not None and value < -1:
            raise _refusal(f"top_k must be 0 (disable), or at least 1, got {value}.")
        return value

    @field_validator("min_p")
    @classmethod
    def _check_min_p(cls, value: float | None) -> float | None:
        if value is not None and not 0 <= value <= 1:
            raise _refusal(f"min_p must be in [0, 1], got {value}.")
        return value

    def sampling_fields(self) -> dict[str, Any]:
        """Return the fields that the request has: arguments of `SamplingParams`."""
        values = {name: getattr(self, name) for name in SamplingFields.model_fields}
        return {name: value for name, value in values.items() if value is not None}


def _refusal(text: str) -> PydanticCustomError:
    return PydanticCustomError("sampling_range", "{text}", {"text": text})
