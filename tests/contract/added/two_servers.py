"""Let two servers, with devices of their own, average their models after every round."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from torch import Tensor

from otafl.algorithms.base import Algorithm
from otafl.core.contracts import Tensors
from otafl.topology.base import Exchange, Topology


class TwoServers(Topology):
    class Settings(Topology.Settings):
        name: Literal["two_servers"] = "two_servers"

        def count(self, scenario: Any) -> int:
            return 2

    def exchange(
        self, server: Tensors, share: Tensor, round: int, algorithm: Algorithm
    ) -> Exchange | None:
        mean = {
            name: block.unflatten(0, (-1, 2)).mean(1).repeat_interleave(2, 0)
            for name, block in algorithm.export_shared(server).items()
        }
        return Exchange(algorithm.import_shared(server, mean), np.zeros(len(share)))
