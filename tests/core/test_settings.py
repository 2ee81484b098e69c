"""Settings: descriptions of fields, and conflicts between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from otafl.core.settings import Settings, declare_stackable

pytestmark = pytest.mark.exact


class Described(Settings):
    """Settings whose field has a description of two lines, and a conflict."""

    low: float = declare_stackable(1.0, ge=0)
    """a number that is described by so many words that they need
    two lines"""
    high: float = 2.0

    def find_conflicts(self) -> Iterator[str]:
        if self.low > self.high:
            yield f"low ({self.low:g}) is above high ({self.high:g})"
            yield "which is not told"


def test_the_string_below_a_field_is_its_description_in_a_line() -> None:
    said = "a number that is described by so many words that they need two lines"
    assert Described.model_fields["low"].description == said
    assert Described.model_json_schema()["properties"]["low"]["description"] == said


def test_the_first_conflict_of_fields_is_refused() -> None:
    assert Described(low=2.0).high == 2.0
    with pytest.raises(ValidationError, match=r"low \(3\) is above high \(2\)") as error:
        Described(low=3.0)
    assert "which is not told" not in str(error.value)
