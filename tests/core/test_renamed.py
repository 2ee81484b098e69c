"""Old names of contracts work, and warn.

Mutations: the new name not set; a class with both names loses its own; no warning; a table of old
names that names nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from otafl.algorithms.base import Algorithm
from otafl.codecs.base import Codec
from otafl.codecs.identity import Identity
from otafl.core import contracts
from otafl.core.contracts import Context, Link
from otafl.core.renamed import Renamed
from otafl.csi.base import Csi
from otafl.power.custom import CustomPolicy
from otafl.selection.base import Selection


class Contract(Renamed):
    old_names: ClassVar = {"told": "report"}

    def report(self) -> int:
        return 0


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


@pytest.mark.parametrize("contract", [Algorithm, Codec, Csi, Selection])
def test_new_names_exist(contract: Any) -> None:
    assert contract.old_names
    for old, new in contract.old_names.items():
        assert hasattr(contract, new)
        assert not hasattr(contract, old)


@pytest.mark.parametrize(("old", "new"), contracts._OLD_NAMES.items())
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
