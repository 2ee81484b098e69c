"""Every data set: what is said of it, and what is said where its files are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.data import load

pytestmark = pytest.mark.exact


KNOWN = [
    name
    for name in registry.list_names("data")
    if registry.load_component("data", name).files
    or registry.load_component("data", name).ships_with
]
"""All but those of which the scenario says where they are."""


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_read_is_as_it_says_or_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    kind = registry.load_component("data", name)
    if kind.files is None:
        source = kind()
        data = load(source)
        assert (data.input_shape, data.classes) == (source.input_shape, source.classes)
        assert (data.owner is not None) == source.has_users
        return
    with pytest.raises(UserError, match=f"of {name} is not in .*`otafl data get {name}`"):
        load(kind(root=str(tmp_path)))
