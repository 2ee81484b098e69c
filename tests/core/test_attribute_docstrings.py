"""The strings below fields, as pydantic finds them, of classes in every shape."""

from __future__ import annotations

import importlib
import linecache
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from otafl.core.settings import Settings

pytestmark = pytest.mark.exact

SOURCE = '''
from __future__ import annotations
from typing import Annotated
from BASES import Base

class Plain(Base):
    """Its own docstring is of no field."""
    a: int = 1
    """Of a, in
    two lines."""
    b: int = 2
    # a remark between them
    c: int = 3
# a remark at the margin
    """Of c."""
    e: int = 5; """Of e."""

    def method(self) -> None:
        d: int = 4
        """Of no field."""

class Outer:
    class Inner(
        Base,
    ):
        """
Text at the margin."""
        a: Annotated[
    int, "shifted"
        ] = 1
        """
Of a, at
the margin."""

    class Plain(Base):
        a: int = 1
        """Of the inner one."""

def same(kind: type) -> type:
    return kind

@same
@same
class Decorated(Base):
    a: int = 1
    """Of a."""

class Heir(Plain):
    b: int = 6
    """Of b, in the heir."""

class Early(Base):
    late: Late | None = None
    """Of late."""

class Late(Base):
    a: int = 1
    """Of a."""

Early.model_rebuild()
MADE = [Plain, Outer.Inner, Outer.Plain, Decorated, Heir, Early, Late]
'''


class Pydantics(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


def describe(base: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The descriptions of the fields of each class, with the base's name in it."""
    monkeypatch.syspath_prepend(folder)
    text = SOURCE.replace("BASES import Base", f"{__name__} import {base} as Base")
    (folder / f"of_{base.lower()}.py").write_text(text)
    importlib.invalidate_caches()
    made = importlib.import_module(f"of_{base.lower()}").MADE
    return [
        {
            name: " ".join((info.description or "").split())
            for name, info in kind.model_fields.items()
        }
        for kind in made
    ]


def test_it_is_what_pydantic_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = describe("Settings", tmp_path, monkeypatch)
    assert ours == describe("Pydantics", tmp_path, monkeypatch)
    assert ours[0] == {"a": "Of a, in two lines.", "b": "", "c": "Of c.", "e": "Of e."}
    assert ours[3] == {"a": "Of a."}


def test_a_class_without_a_source_has_none() -> None:
    space = {"Settings": Settings, "__name__": "typed_in"}
    exec("class Typed(Settings):\n    a: int = 1\n    'Of a.'", space)
    assert space["Typed"].model_fields["a"].description is None
    text = "class Cell(Settings):\n    a: int = 1\n    'Of a.'\n"
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    exec(compile(text, "<cell>", "exec"), space)
    assert space["Cell"].model_fields["a"].description == "Of a."
