"""Every component of a table of classes does the same when a scenario names it as a class of the
user's own, `module:Class`: what adapts and checks the user's leaves results as they are; keys,
stacked numbers, memory and randomness included.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract.small import engine, run, scenario, small

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.user_code.custom_part import CustomClass

pytestmark = pytest.mark.exact

TABLES = [
    table
    for table, one in registry.TABLES.items()
    if one.supports_custom and issubclass(registry.load_settings_class(table, ":"), CustomClass)
]
ENTRIES = [(table, registry.list_names(table)[1]) for table in TABLES if table != "algorithm"]
"""The second of each table; the tests of users' algorithms are in tests/algorithms."""

SLOW = {"name": "rayleigh", "speed_kmh": 3.0, "round_interval_s": 0.01}
KEYS = {"devices.count": 6, "devices.participants": 3, "channel": SLOW, "trials": 2}
LAYERS = {"matrix_sensing": {"algorithm": {"name": "fedavg", "sends": "model"}}}


def changes(table: str, section: dict[str, Any]) -> dict[str, Any]:
    return KEYS | {registry.TABLES[table].section: section}


def own(table: str, name: str) -> str:
    kind = registry.load_component(table, name)
    return f"{kind.__module__}:{kind.__name__}"


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_a_class_does_what_it_does_by_its_name(table: str, name: str) -> None:
    section, example = small(table, name), registry.load_settings_class(table, name).example
    elsewhere = {key: value for key, value in example.items() if not key.startswith(f"{table}.")}
    named = section | {"name": own(table, name)}
    built_in, users = (
        run(engine(elsewhere | changes(table, one) | LAYERS.get(name, {})), 3)
        for one in (section, named)
    )
    for key, block in built_in.server.items():
        assert torch.equal(block, users.server[key])
    taken = [one.means.take() for one in (built_in, users)]
    for key, value in taken[0].items():
        assert torch.equal(value.nan_to_num(), taken[1][key].nan_to_num()), key


@pytest.mark.parametrize("table", TABLES)
def test_keys_and_classes_that_do_not_fit(table: str) -> None:
    section, name = registry.TABLES[table].section, registry.list_names(table)[1]
    for keys, said in (
        ({"name": own(table, name), "no_such_key": 1}, f"{section}.no_such_key: unknown key"),
        ({"name": "math:pi"}, f"{section}.name: 'math:pi': 'pi' is not callable in module 'math'"),
        ({"name": "simpy:Event"}, f"{section}.name: 'simpy:Event' is no "),
        ({"name": "collections:Counter"}, f"{section}.name: 'collections:Counter' is built in"),
    ):
        with pytest.raises(UserError) as error:
            scenario(changes(table, keys))
        assert str(error.value).startswith(said)
    contract = registry.load_settings_class(table, ":").base_class  # type: ignore[attr-defined]
    if getattr(contract, "__abstractmethods__", ()):
        with pytest.raises(UserError, match=f"^{section}.name: .* has no "):
            scenario(changes(table, {"name": f"{contract.__module__}:{contract.__name__}"}))
