"""Many bad inputs in one test, which names all that are not refused as they should be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from otafl.core.errors import UserError


def assert_refused(
    act: Callable[..., object],
    cases: Iterable[tuple[Any, str]],
    error: type[Exception] = UserError,
) -> None:
    """`act(case)` fails with a message that its pattern is in; keywords, if the case is a dict."""
    wrong = []
    for case, said in cases:
        try:
            act(**case) if isinstance(case, dict) else act(case)
        except error as got:
            if not re.search(said, str(got)):
                wrong.append(f"{case!r}: expected {said!r}, got {got}")
        else:
            wrong.append(f"{case!r}: not refused; expected {said!r}")
    assert not wrong, "\n".join(wrong)
