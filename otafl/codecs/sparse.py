"""Keep what a device leaves out, and add it to what it sends next (error feedback).

Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory", Algorithm 1: a = x + e, top_k(a) is
sent and e = a - top_k(a) kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field
from torch import Tensor

from otafl.core.contracts import Blocks, Group, Payload


def feedback() -> bool:
    """Declare whether what is left out is remembered."""
    wanted: bool = Field(
        True, description="what is left out is added to what the device sends next"
    )
    return wanted


@dataclass(frozen=True)
class Feedback:
    """Hold the devices' memory, "rest/<group>" [N, P] for each uplink group, where it is wanted."""

    wanted: bool

    def init(self, payload: Payload) -> Blocks:
        """Return a memory of zeros."""
        if not self.wanted:
            return {}
        memory = {}
        for index, group in enumerate(payload):
            if group.route == "uplink":
                first = next(iter(group.blocks.values()))
                memory[_name(index)] = first.new_zeros(1, 1).expand(len(first), group.reals)
        return memory

    def before(
        self, x: Tensor, mask: Tensor | None, group: Group, index: int, own: Blocks
    ) -> Tensor:
        """Return a = x + e [n, P], of coordinates that the rows know."""
        if not self.wanted:
            return x
        rest = own[_name(index)]
        rest = rest if group.rows is None else rest[group.rows]
        return x + (rest if mask is None else rest * mask)

    def after(
        self, a: Tensor, sent: Tensor, mask: Tensor | None, group: Group, index: int, own: Blocks
    ) -> Blocks:
        """Return the memory with e = a - sent; of coordinates that a row does not know, as it
        was."""
        if not self.wanted:
            return own
        name, rest = _name(index), a - sent
        if mask is not None:
            old = own[name] if group.rows is None else own[name][group.rows]
            rest = rest + old * (1.0 - mask)
        if group.rows is not None:
            rest = own[name].index_copy(0, group.rows, rest)
        return own | {name: rest}


def _name(index: int) -> str:
    return f"rest/{index}"
