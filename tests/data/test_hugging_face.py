"""Data sets of Hugging Face's library, where it is missing; `tests/interop` has those it reads."""

from __future__ import annotations

import sys

import pytest

from otafl.core.errors import UserError
from otafl.data import load
from otafl.data.fetch import fetch, list_available
from otafl.data.hugging_face import HuggingFace

pytestmark = pytest.mark.exact


def test_without_the_library_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = r"^data.name: 'hf' needs a package \(.*datasets.*\); run pip install 'otafl\[hf\]'"
    with pytest.raises(UserError, match=message):
        load(HuggingFace(dataset="owner/name"))


def test_there_is_nothing_to_download_beforehand() -> None:
    (line,) = (line for line in list_available() if line.name == "hf")
    assert (line.location, line.is_present) == ("given in the section data", False)
    with pytest.raises(UserError, match="there is nothing to download for 'hf'"):
        fetch("hf")


def test_who_has_users() -> None:
    assert not HuggingFace(dataset="a/b").has_users
    assert HuggingFace(dataset="a/b", user="writer").has_users
