"""Old names of contracts work, and warn."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from otafl.algorithms.base import Algorithm
from otafl.channels.base import Channel
from otafl.channels.custom import Draws
from otafl.codecs.base import Codec
from otafl.codecs.identity import Identity
from otafl.core import contracts
from otafl.core.contracts import Context, Link
from otafl.core.renamed import OLD_GLOBALS, OLD_NAMES, Renamed, list_old_names
from otafl.core.stateful import Stateful
from otafl.csi.base import Csi
from otafl.downlink.base import Delivery
from otafl.models.base import Model
from otafl.power.custom import CustomPolicy
from otafl.selection.base import Selection
from otafl.server.base import ServerOptimiser

CONTRACTS = [
    *(getattr(contracts, name) for name in contracts.__all__ if name in OLD_NAMES),
    *(Algorithm, Channel, Codec, Csi, Delivery, Draws, Model, Selection, ServerOptimiser, Stateful),
]


def list_annotations(kind: type[Any]) -> dict[str, Any]:
    return vars(kind).get("__annotations__", {})


class Contract(Renamed):
    """Its old names are those of `contract`."""

    def report(self) -> int:
        return 0


@pytest.fixture
def contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OLD_NAMES, "Contract", {"told": "report"})  # type: ignore[arg-type]


@pytest.mark.usefixtures("contract")
def test_a_method_by_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"Old\.told is now called report; rename it"):

        class Old(Contract):
            def told(self) -> int:
                return 1

    class New(Contract):
        def report(self) -> int:
            return 2

        def told(self) -> int:
            return 3

    assert (Old().report(), New().report(), Contract().report()) == (1, 2, 0)


def test_an_error_in_a_property_is_its_own() -> None:
    class Faulty(Contract):
        @property
        def wrong(self) -> int:
            return self.report().no_such_thing  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(AttributeError, match="'int' object has no attribute 'no_such_thing'"):
        _ = Faulty().wrong
    with pytest.raises(AttributeError, match="'Faulty' object has no attribute 'nothing'") as error:
        _ = Faulty().nothing  # type: ignore[attr-defined]
    assert error.value.name == "nothing"


def test_names_of_a_base_and_of_its_base() -> None:
    with pytest.warns(DeprecationWarning, match="is now called") as caught:

        class Old(Codec):
            lasting = ("_seen",)
            remembers = True

    assert len(caught) == 2
    assert (Old.state_attrs, Old.has_memory) == (("_seen",), True)


def test_a_codec_by_its_old_names() -> None:
    """Also an abstract method is there."""
    with pytest.warns(DeprecationWarning, match="encode_group"):

        class Old(Codec):
            def encoded(self, group: Any, index: Any, memory: Any, context: Any) -> Any:
                return group, memory

    assert not Old.__abstractmethods__
    assert Old(None, {}, None).encode_group(1, 0, {}, None) == (1, {})  # type: ignore[arg-type]
    assert not Identity.has_memory.fget(None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_new_names_exist(contract: Any) -> None:
    known = {name for kind in contract.__mro__ for name in (*vars(kind), *list_annotations(kind))}
    assert set(list_old_names(contract).values()) <= known
    assert not known & list_old_names(contract).keys()


def test_every_old_name_is_of_a_contract() -> None:
    assert {contract.__name__ for contract in CONTRACTS} == OLD_NAMES.keys()


@pytest.mark.parametrize(("old", "new"), OLD_GLOBALS["otafl.core.contracts"].items())
def test_types_by_their_old_names(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now called {new}"):
        assert getattr(contracts, old) is getattr(contracts, new)
    with pytest.raises(AttributeError, match="Nothing"):
        _ = contracts.Nothing  # type: ignore[attr-defined]


def test_fields_by_their_old_names() -> None:
    context = Context(
        SimpleNamespace(trial=torch.tensor([1, 0])),  # type: ignore[arg-type]
        {"a": torch.tensor([2.0, 3.0])},
        None,  # type: ignore[arg-type]
        0,
    )
    with pytest.warns(DeprecationWarning, match=r"Context\.of_rows is now called gather_hyper"):
        assert context.of_rows("a").tolist() == [3.0, 2.0]
    ones = torch.ones(1, 2)
    link = Link(
        torch.tensor([[[1.0, 0.0]]]), ones, ones, ones[:, None], ones[:, 0], ones > 0, True, {}
    )
    with pytest.warns(DeprecationWarning, match=r"Link\.able is now called eligible_mask"):
        assert link.able.tolist() == [[[True, False]]]


@pytest.mark.parametrize(
    ("old", "new"), [("inverts", "is_inversion"), ("wants_variation", "needs_variation")]
)
def test_attributes_of_a_function_by_their_old_names(old: str, new: str) -> None:
    def mine(link: Any) -> Any: ...

    settings = SimpleNamespace(name="mine", key="power", options={})
    policy = CustomPolicy(settings, mine)  # type: ignore[arg-type]
    assert not getattr(policy, new)
    setattr(mine, old, True)
    with pytest.warns(DeprecationWarning, match=f"the attribute {old} of 'mine' is now"):
        assert getattr(policy, new)


@pytest.mark.parametrize("name", OLD_GLOBALS)
def test_functions_by_their_old_names(name: str) -> None:
    module: Any = importlib.import_module(name)
    assert OLD_GLOBALS[name]
    for old, new in OLD_GLOBALS[name].items():
        with pytest.warns(DeprecationWarning, match=rf"\.{old} is now called {new}"):
            assert getattr(module, old) is getattr(module, new)
    with pytest.raises(AttributeError, match="Nothing"):
        _ = module.Nothing
