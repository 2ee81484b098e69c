"""Arrays that users bring: numbers stay as they are, or a sentence says which cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from otafl.core.arrays import to_numbers, to_single
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact

NUMBERS = np.array([[1.5, -2.0], [0.0, 3.0]])


def test_numbers_stay_as_they_are() -> None:
    whole = np.array([2**24, -(2**24)])
    given: list[Any] = [NUMBERS.tolist(), pd.DataFrame(NUMBERS), torch.from_numpy(NUMBERS)]
    for one in (NUMBERS, *given, np.array([True, False]), np.array([0, 255], np.uint8), whole):
        single = to_single(to_numbers(one, "x", "numbers"), "x", "values")
        assert single.dtype == np.float32
        assert np.array_equal(single, one)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (NUMBERS + 0j, "x: got the type complex128; expected numbers"),
        (NUMBERS.astype(object), "x: got the type object"),
        (pd.DataFrame({"a": [1.0], "b": ["c"]}), "x: got the type object"),
        ([[1.0], [1.0, 2.0]], "x: cannot be an array"),
        (torch.ones(2, requires_grad=True), "x: cannot be an array"),
        (
            np.ma.array(NUMBERS, mask=[[False, False], [True, False]]),
            "x: 1 of 4 values is masked, first at sample 1, feature 0 ",
        ),
    ],
)
def test_arrays_without_numbers_are_refused(given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        to_numbers(given, "x", "numbers")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((1, 0), np.nan, r"x: 1 of 4 values is not finite, first at sample 1, feature 0 \(got nan"),
        ((0, 1), 1e39, r"first at sample 0, feature 1 \(got 1e\+39\); expected .* up to 3.4e38"),
    ],
)
def test_numbers_beyond_single_precision_are_refused(
    place: tuple[int, int], value: float, said: str
) -> None:
    numbers = NUMBERS.copy()
    numbers[place] = value
    with pytest.raises(UserError, match=said):
        to_single(numbers, "x", "values")


@pytest.mark.parametrize(
    "given",
    [np.array([0, 2**24 + 1]), np.array([0, -(2**24) - 1]), np.array([0, 2**64 - 1], np.uint64)],
)
def test_whole_numbers_that_lose_digits_are_refused(given: Any) -> None:
    with pytest.raises(UserError, match=r"1 of 2 values is too large a .* sample 1"):
        to_single(given, "x", "values")


def test_indices_of_further_dimensions_follow() -> None:
    images = np.zeros((4, 3, 2, 2))
    images[3, 0, 1, 0] = images[2, 1, 0, 1] = np.nan
    with pytest.raises(UserError, match=r"2 of 48 values are not .* sample 2, feature 1, 0, 1"):
        to_single(images, "x", "values")
