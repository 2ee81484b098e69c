"""Pages of the Python interface, for autodoc."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import otafl
from otafl.core.registry import TABLES, Table
from otafl_docs import rst

CONTRACTS = ("cohort", "payload", "link", "learning")

AUTOMODULE = """\
.. automodule:: {}
   :members:
   :undoc-members:
   :exclude-members: Settings, model_config"""
"""A component's settings are on its page of the reference."""


def _find_contract(table: Table) -> str:
    """Find the module with the base class of a table's components."""
    own = f"{table.package}.base"
    return own if importlib.util.find_spec(own) else table.modules[table.default]


MODULES = {
    "contracts": (
        "What parts hand each other",
        {
            **{name.capitalize(): f"otafl.core.contracts.{name}" for name in CONTRACTS},
            "Tensors": "otafl.core.tensors",
        },
        "What a method, a channel, a codec, a policy or a transport is given and gives.",
    ),
    "components": (
        "Base classes of components",
        {table.title: _find_contract(table) for table in TABLES.values()},
        "What a component of your own derives from, or is held to.",
    ),
    "models": (
        "Models",
        {
            "Of layers": "otafl.models.layered",
            "A layer": "otafl.models.linear_layer",
            "Of your own": "otafl.models.custom",
        },
        "Models of layers, and a torch.nn.Module as a model.",
    ),
    "differentiable": (
        "The differentiable uplink",
        {"Functions": "otafl.own_loop.differentiable"},
        "The uplink as plain functions of tensors, through which gradients pass.",
    ),
}


def pages() -> Iterator[tuple[str, str]]:
    """Path without suffix, and text, of every page."""
    yield "api/otafl", _public()
    for name, (title, modules, text) in MODULES.items():
        parts = [
            f"{rst.heading(part, 1)}\n\n{AUTOMODULE.format(module)}"
            for part, module in modules.items()
        ]
        yield f"api/{name}", rst.page(rst.heading(title), text, *parts)
    data = ".. autoclass:: otafl.data.DataSet\n   :members:"
    about = "What a data set of your own returns (:doc:`/extending`)."
    yield "api/data", rst.page(rst.heading("Data sets"), about, data)


def _public() -> str:
    parts = [rst.heading("otafl"), rst.prose(otafl.__doc__ or "")]
    for name in sorted(otafl.__all__):
        thing = getattr(otafl, name)
        if name == "__version__":
            parts.append(".. py:data:: otafl.__version__\n   :type: str\n\n   The version.")
        elif isinstance(thing, type):
            parts.append(f".. autoclass:: otafl.{name}\n   :members:")
        else:
            parts.append(f".. autofunction:: otafl.{name}")
    parts.append(".. autoclass:: otafl.own_loop.update_kinds.UplinkReport")
    return rst.page(*parts)
