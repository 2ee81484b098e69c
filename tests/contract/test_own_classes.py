"""What is said of keys and classes that do not fit, where a scenario names a class of the user's
own, `module:Class`, in a table of classes."""

from __future__ import annotations

import pytest
from contract.small import scenario

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.user_code.custom_part import CustomClass

pytestmark = pytest.mark.exact

TABLES = [
    table
    for table, one in registry.TABLES.items()
    if one.supports_custom and issubclass(registry.load_settings_class(table, ":"), CustomClass)
]


def own(table: str, name: str) -> str:
    kind = registry.load_component(table, name)
    return f"{kind.__module__}:{kind.__name__}"


@pytest.mark.parametrize("table", TABLES)
def test_keys_and_classes_that_do_not_fit(table: str) -> None:
    section, name = registry.TABLES[table].section, registry.list_names(table)[1]
    absent = (
        ({"name": "math:pi"}, f"{section}.name: 'math:pi': 'pi' is not callable in module 'math'"),
        ({"name": "collections:Counter"}, f"{section}.name: 'collections:Counter' is built in"),
    )
    if table == "power":  # it may name a function too, which the preflight finds
        absent = ()
    for keys, said in (
        *absent,
        ({"name": own(table, name), "no_such_key": 1}, f"{section}.no_such_key: unknown key"),
        ({"name": "simpy:Event"}, f"{section}.name: 'simpy:Event' is no "),
    ):
        with pytest.raises(UserError) as error:
            scenario({section: keys})
        assert str(error.value).startswith(said)
    contract = registry.load_settings_class(table, ":").base_class  # type: ignore[attr-defined]
    if getattr(contract, "__abstractmethods__", ()):
        with pytest.raises(UserError, match=f"^{section}.name: .* has no "):
            scenario({section: {"name": f"{contract.__module__}:{contract.__name__}"}})
