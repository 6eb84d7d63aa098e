"""The ancestor of every model of what people write: unknown keys are errors."""

from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, field_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from settings.quantities import write_duration


class Strict(BaseModel):
    """Refuse unknown keys, later changes, and values that no command line can carry."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _can_be_carried(cls, value: Any) -> Any:  # noqa: ANN401 - of every field
        check_carried(value)
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Show the default of a duration as people write it, lest the form be invalid at first."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for field in properties.values():
            if field.get("type") == "string" and isinstance(field.get("default"), float):
                field["default"] = write_duration(field["default"])
        return schema


def check_carried(value: object) -> None:
    """Raise `ValueError` for a text or number that no command line, JSON or Parquet can hold."""
    match value:
        case str():
            if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
                raise ValueError("holds a character that no command line can carry")
        case int():
            if not -(2**63) <= value < 2**63:
                raise ValueError("a whole number must fit into 64 bits")
        case list() | tuple():
            for item in value:
                check_carried(item)
        case dict():
            for key, item in value.items():
                check_carried(key)
                check_carried(item)
