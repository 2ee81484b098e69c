"""The strings below fields are their descriptions."""

from __future__ import annotations

import importlib
import sys

import pytest
from pydantic import Field, create_model

from otafl.core.field_descriptions import DescribedJsonSchema, read_descriptions
from otafl.core.settings import Settings, declare_stackable

pytestmark = pytest.mark.exact

OWN = """\
from otafl.core.settings import Settings
class Own(Settings):
    a: int = 1
    '{}'
"""
WORDS = "a number that is described by so many words that they need two lines"


class Described(Settings):
    """Settings with a description of two lines, one that is given, and a field without one."""

    low: float = declare_stackable(1.0, ge=0)
    """a number that is described by so many words that they need
    two lines"""
    high: float = Field(2.0, description="given")
    """the given description precedes"""
    bare: float = 3.0


class Narrower(Described):
    """Settings that declare one of the fields anew."""

    high: float = 5.0
    """said anew"""


def test_the_string_below_a_field_is_its_description_in_a_line() -> None:
    assert read_descriptions(Described) == {"low": WORDS, "high": "given"}


def test_a_subclass_says_what_it_declares_anew() -> None:
    assert read_descriptions(Narrower) == {"low": WORDS, "high": "said anew"}


def test_of_two_classes_of_one_name_each_has_its_own() -> None:
    def make() -> type[Settings]:
        class Described(Settings):
            low: float = 1.0
            """another number"""

        return Described

    assert read_descriptions(make()) == {"low": "another number"}
    assert read_descriptions(Described)["low"] == WORDS


def test_a_class_without_source_has_what_is_given() -> None:
    made = create_model(
        "Made", __base__=Described, __module__="nowhere", bare=(float, Field(3.0, description="x"))
    )
    assert read_descriptions(made) == {"low": WORDS, "high": "given", "bare": "x"}


def test_the_json_schema_has_them() -> None:
    keys = Narrower.model_json_schema(schema_generator=DescribedJsonSchema)["properties"]
    said = {name: key.get("description") for name, key in keys.items()}
    assert said == {"low": WORDS, "high": "said anew", "bare": None}


class Renamed(Settings):
    """Settings of which a field has another name in files."""

    low: float = Field(1.0, alias="least")
    """a number"""


@pytest.mark.parametrize(("by_alias", "name"), [(True, "least"), (False, "low")])
def test_a_field_with_another_name_in_files_has_its_own(by_alias: bool, name: str) -> None:
    keys = Renamed.model_json_schema(by_alias, schema_generator=DescribedJsonSchema)["properties"]
    assert keys[name]["description"] == "a number"


def test_two_files_of_one_name_are_two_modules(tmp_path, monkeypatch) -> None:
    said = []
    for text in ("first", "second"):
        (tmp_path / text).mkdir()
        (tmp_path / text / "own_described.py").write_text(OWN.format(text))
        monkeypatch.syspath_prepend(tmp_path / text)
        said.append(read_descriptions(importlib.import_module("own_described").Own))
        del sys.modules["own_described"]
    assert said == [{"a": "first"}, {"a": "second"}]
