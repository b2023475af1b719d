"""Sampling fields that all three API forms share: penalties, `top_k` and `min_p`."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from core.openai.ranges import range_error

Finite = Annotated[float, Field(allow_inf_nan=False)]


class SamplingFields(BaseModel):
    """Penalties and bounds of one request, with vLLM's ranges and its words for a value that is out
    of them."""

    presence_penalty: Finite | None = None
    frequency_penalty: Finite | None = None
    repetition_penalty: Finite | None = None
    top_k: int | None = None
    min_p: Finite | None = None

    @field_validator(
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "top_k", "min_p")
    )
    @classmethod
    def _check_range(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and (text := range_error(str(info.field_name), value)):
            raise PydanticCustomError("sampling_range", "{text}", {"text": text})
        return value

    def sampling_fields(self) -> dict[str, Any]:
        """Return the fields that the request has: arguments of `SamplingParams`."""
        values = {name: getattr(self, name) for name in SamplingFields.model_fields}
        return {name: value for name, value in values.items() if value is not None}
