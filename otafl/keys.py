"""The keys of a scenario: which sections choose an entry of a table, which keys there are, and
setting one by its dotted name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Union, get_args

from pydantic import BaseModel, BeforeValidator, Discriminator, Tag
from pydantic.fields import FieldInfo

from otafl import registry

Path = tuple[str | int, ...]

DEFAULTS = {
    "data": "digits",
    "partition": "iid",
    "model": "mlp",
    "algorithm": "fedavg",
    "channel": "rayleigh",
    "csi": "perfect",
    "receiver": "auto",
    "power": "gbma",
    "codec": "identity",
    "transport": "over_the_air",
    "server": "average",
    "downlink": "ideal",
    "selection": "uniform",
    "levels": "fixed",
    "compute": "phone",
    "protocol": "rounds",
    "availability": "always",
    "frequency": "full",
}
"""Table -> the name that a section has if it gives none."""

_OF_DEVICES = ("selection", "levels", "compute", "protocol", "availability", "frequency")

CHOICES: dict[Path, str] = {
    (table,): table for table in DEFAULTS if table not in ("partition", *_OF_DEVICES)
} | {
    ("data", "partition"): "partition",
    **{("devices", table): table for table in _OF_DEVICES},
}
"""Sections that choose an entry by `name` -> the table they choose from."""


def choice(table: str) -> Any:
    """The type of a section that chooses from a table: a tagged union of its settings classes. A
    plain text stands for `{name: text}`."""
    classes = {name: registry.config_class(table, name) for name in registry.names(table)}
    if table in registry.CUSTOM:
        classes["module:callable"] = registry.config_class(table, ":")
    union: Any = Union[tuple(Annotated[kind, Tag(tag)] for tag, kind in classes.items())]  # noqa: UP007
    return Annotated[
        union, Discriminator(_tagger(table)), BeforeValidator(lambda value: named(table, value))
    ]


def default(table: str) -> Any:
    """The settings that a section has if it is not given."""
    return registry.config_class(table, DEFAULTS[table])()


def named(table: str, value: Any) -> Any:
    """A section's value as a mapping with its `name`; what is neither text nor mapping as it is."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping) and "name" not in value:
        return {"name": DEFAULTS[table], **value}
    return value


def _tagger(table: str) -> Callable[[Any], str | None]:
    def tag(value: Any) -> str | None:
        name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
        own = table in registry.CUSTOM and isinstance(name, str) and ":" in name
        return "module:callable" if own else name

    return tag


def dotted(path: Path) -> str:
    """`model.hidden[1]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def split(key: str) -> Path:
    """The path of a dotted key; an axis of the sweep has its own dots."""
    if key.startswith("sweep."):
        return ("sweep", key.removeprefix("sweep."))
    return tuple(key.split("."))


def child(tree: Any, part: str | int) -> Any:
    """What stands below a key or index, or None."""
    if isinstance(tree, Mapping):
        return tree.get(part)
    if isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree):
        return tree[part]
    return None


def put(tree: Mapping[str, Any], path: Path, value: Any, above: Path = ()) -> dict[str, Any]:
    """A copy of the tree with the value at the path. Raises KeyError(path) where a key on the way
    holds something that has no keys."""
    first, rest = path[0], path[1:]
    if not rest:
        return {**tree, str(first): value}
    here = (*above, first)
    inner = tree.get(str(first))
    if isinstance(inner, str) and here in CHOICES:
        inner = {"name": inner}
    if inner is None:
        inner = {}
    if not isinstance(inner, Mapping):
        raise KeyError(here)
    return {**tree, str(first): put(inner, rest, value, here)}


def fields(root: type[BaseModel], above: Path = ()) -> Iterator[tuple[str, FieldInfo]]:
    """Every dotted key below a model with its field, those of all entries of a table included; a
    key that several entries have comes several times."""
    for name, info in root.model_fields.items():
        path = (*above, name)
        yield dotted(path), info
        table = CHOICES.get(path)
        if table:
            for entry in registry.names(table):
                yield from fields(registry.config_class(table, entry), path)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from fields(info.annotation, path)


def model_at(root: type[BaseModel], path: Path, tree: Any) -> type[BaseModel] | None:
    """The settings class that holds the keys below a path, as the tree chooses it."""
    model: type[BaseModel] | None = root
    for depth, part in enumerate(path):
        tree = child(tree, part)
        if isinstance(part, int):
            continue
        if model is None or part not in model.model_fields:
            return None
        table = CHOICES.get(path[: depth + 1])
        model = _chosen(table, tree) if table else _inside(model.model_fields[part].annotation)
    return model


def _chosen(table: str, section: Any) -> type[BaseModel] | None:
    section = named(table, {} if section is None else section)
    name = section.get("name") if isinstance(section, Mapping) else None
    own = table in registry.CUSTOM and isinstance(name, str) and ":" in name
    if not own and name not in registry.names(table):
        return None
    return registry.config_class(table, str(name))


def _inside(annotation: Any) -> type[BaseModel] | None:
    """The settings class in an annotation, as in a tuple of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _inside(arg))), None)
