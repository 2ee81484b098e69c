"""Packages that only some installations have."""

from __future__ import annotations

import pytest

from otafl.core.errors import UserError
from otafl.core.packages import import_extra

pytestmark = pytest.mark.exact


def test_what_is_missing_is_told_with_the_remedies() -> None:
    with pytest.raises(UserError) as error:
        import_extra("--to onnx", "onnx", "json", "otafl_has_no_such", instead=", or --to torch")
    assert str(error.value) == (
        "--to onnx needs a package (No module named 'otafl_has_no_such'); run pip "
        "install 'otafl[onnx]', or --to torch"
    )
