"""Settings: conflicts between fields."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from otafl.core.settings import Settings, declare_stackable, get_description

pytestmark = pytest.mark.exact


class Ordered(Settings):
    """Settings of which one field may not be above the other."""

    low: float = 1.0
    high: float = 2.0

    def find_conflicts(self) -> Iterator[str]:
        if self.low > self.high:
            yield f"low ({self.low:g}) is above high ({self.high:g})"
            yield "which is not told"


def test_the_first_conflict_of_fields_is_refused() -> None:
    assert Ordered(low=2.0).high == 2.0
    with pytest.raises(ValidationError, match=r"low \(3\) is above high \(2\)") as error:
        Ordered(low=3.0)
    assert "which is not told" not in str(error.value)


class Described(Settings):
    """Settings with a description of two lines."""

    low: float = declare_stackable(1.0, ge=0)
    """a number whose description
    needs two lines"""
    bare: float = 3.0


def test_the_string_below_a_field_is_its_description_on_one_line() -> None:
    said = {name: get_description(info) for name, info in Described.model_fields.items()}
    assert said == {"low": "a number whose description needs two lines", "bare": ""}
