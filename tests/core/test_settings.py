"""Settings: conflicts between fields."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from otafl.core.settings import Settings

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
