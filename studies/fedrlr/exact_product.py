"""FedRLR whose server receives the factors of each device, and so the exact sum of products.

The server's model is then eq. (20) itself, the best approximation of rank R of the mean of the
devices' models, and not the product of two coded sums.
"""

from __future__ import annotations

from typing import ClassVar

from otafl.algorithms.base import Outcome, PayloadKind
from otafl.algorithms.deliveries import get_delivered, replace_delivered, scatter_to_table
from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.algorithms.low_rank.low_rank_layers import get_point, name_point
from otafl.core import contracts as c
from otafl.factorised import lowrank


class ExactProduct(FedRLR):
    """FedRLR with an exact sum of products, for `transport: ideal` and full participation."""

    payload: ClassVar = PayloadKind("each", is_increment=False)

    def run_local_update(
        self, broadcast: c.Broadcast, devices: c.Tensors, context: c.LocalContext
    ) -> Outcome:
        state, (_, biases), loss = super().run_local_update(broadcast, devices, context)
        factors: c.Tensors = {}
        for i in range(len(self.ranks)):
            point = get_point(state, i)
            root = (point.s * context.cohort.weight[:, None]).sqrt()[:, None]
            factors |= {f"u{i}": (point.u * root).mT, f"v{i}": (point.v * root).mT}
        return state, (c.Group(factors, weighting="none"), biases), loss

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        """Compute the best approximation of rank R of the sum of all products, eq. (20)."""
        each, mask = get_delivered(received, 0)
        biases = replace_delivered(server, received, 1)
        beside = {
            name: scatter_to_table(rows, mask, context.cohort).flatten(1, 2).mT
            for name, rows in each.items()
        }
        layers = range(len(self.ranks))
        points = lowrank.compress(
            [beside[f"u{i}"] for i in layers], [beside[f"v{i}"] for i in layers], self.ranks
        )
        tensors: c.Tensors = {}
        for i, point in enumerate(points):
            tensors |= name_point(i, point) | {f"b{i}": biases[f"b{i}"]}
        return tensors
