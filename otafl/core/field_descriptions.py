"""Descriptions of settings: the strings below the fields in the source of their class.

They are read when somebody asks for them. Pydantic would read them whenever a class is made, which
took a tenth of the start of every command and worker.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def read_descriptions(settings: type[BaseModel]) -> dict[str, str]:
    """Return the description of each field, on one line; fields without one are left out.

    A description that is given to `pydantic.Field` precedes the string below the field. A field
    that a subclass declares anew has the description of the subclass. Where there is no source, as
    of a class made in an interpreter, no strings are found.

    Parameters
    ----------
    settings : type of BaseModel
        Settings class.
    """
    found: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        own = vars(kind).get("__annotations__", {}) if issubclass(kind, BaseModel) else {}
        below = _read_strings(kind) if own else {}
        found |= {name: below.get(name, "") for name in own}
    for name, info in settings.model_fields.items():
        found[name] = info.description or found.get(name, "")
    return {name: " ".join(found[name].split()) for name in settings.model_fields if found[name]}


def _read_strings(kind: type[Any]) -> dict[str, str]:
    """Return name -> string below it, of the annotated names in a class's body."""
    module = sys.modules.get(kind.__module__)
    node: ast.AST | None = _parse(module) if module else None
    for part in kind.__qualname__.replace(".<locals>", "").split("."):
        inner = ast.walk(node) if node else ()
        node = next((one for one in inner if isinstance(one, SCOPES) and one.name == part), None)
    if not isinstance(node, ast.ClassDef):
        return {}
    return {
        above.target.id: below.value.value
        for above, below in zip(node.body, node.body[1:], strict=False)
        if isinstance(above, ast.AnnAssign)
        and isinstance(above.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


@functools.cache
def _parse(module: ModuleType) -> ast.Module | None:
    """Return the syntax tree of a module, or None if its source is not there."""
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, TypeError):
        return None


class DescribedJsonSchema(GenerateJsonSchema):
    """JSON schema in which every property has the description of its field."""

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the JSON schema of a class, as pydantic's, with descriptions."""
        described = super().model_schema(schema)
        properties, fields = described.get("properties", {}), schema["cls"].model_fields
        for name, text in read_descriptions(schema["cls"]).items():
            for key in {name, fields[name].alias} & properties.keys():
                properties[key].setdefault("description", text)
        return described
