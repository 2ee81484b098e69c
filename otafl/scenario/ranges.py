"""Ranges of numbers in `--set`, such as `sweep.channel.snr_db=0:20:5`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from otafl.core.errors import UserError
from otafl.scenario.yaml_source import MAX_POINTS

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?"


def expand_range(value: Any) -> Any:
    """Return the numbers of a text `first:last:step`; other values stay as they are.

    The last number belongs to the range if steps from the first reach it. Whole numbers stay whole,
    and decimals are exact: 0:0.3:0.1 ends with 0.3.

    Raises
    ------
    UserError
        If the step is zero or leads away from the last number, or if there are too many numbers.
    """
    if not isinstance(value, str) or not re.fullmatch(rf"{NUMBER}:{NUMBER}:{NUMBER}", value):
        return value
    first, last, step = map(Decimal, value.split(":"))
    if not step or (last - first) / step < 0:
        raise UserError(f"expected first:last:step with a step from first to last, got {value}")
    count = int((last - first) / step) + 1
    if count > MAX_POINTS:
        raise UserError(f"{value} has {count:,} numbers; must have at most {MAX_POINTS:,}")
    is_whole = not re.search(r"[.eE]", value)
    numbers = (first + index * step for index in range(count))
    return [int(one) if is_whole else float(one) for one in numbers]
