"""The ancestor of every model of what people write: unknown keys are errors."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Refuse unknown keys and later changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
