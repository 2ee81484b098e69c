"""The list of mistakes that the tests are held to."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "mutations.py"), run_name="mutations")


def test_every_mistake_has_its_place() -> None:
    every = SCRIPT["list_mutations"]()
    assert len(every) >= 60
    assert len({one.what for one in every}) == len(every)
    for one in every:
        text = (ROOT / "otafl" / one.file).read_text()
        assert one.apply(text) != text


@pytest.mark.parametrize("text", ["x = 1\n", "y = 2\nz = y = 2\n"])
def test_a_stale_mistake_says_so(text: str) -> None:
    mutation: Any = SCRIPT["Mutation"]("a sum is off", "power/ci.py", "y = <|2 => 3|>")
    with pytest.raises(ValueError, match=r"otafl/power/ci.py has [02] times, not once: y = 2"):
        mutation.apply(text)
