"""Methods whose devices send the model itself, of which the server takes the mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from otafl.algorithms.base import Algorithm, PayloadKind, Views
from otafl.algorithms.parameters import count_step_flops, draw_start, make_view
from otafl.algorithms.whole_models import compute_density, get_received_model
from otafl.core import contracts as c
from otafl.core.rng import Streams


class WholeModelMethod(Algorithm):
    """A method whose devices send their parameters, by `whole_models.build_payload`.

    The server's tensors are the parameters [S, *shape] instead of "model", and their mean is the
    next model. Devices have no state.
    """

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind(cls.needs, is_increment=False)

    def count_flops(self, workload: c.Workload) -> np.ndarray:
        return count_step_flops(self.model, workload, per_param_round=0.0)

    def init(self, streams: Streams, hyper: c.Hyper) -> tuple[c.Tensors, c.Tensors]:
        return draw_start(self.model, streams), {}

    def update_server(
        self, server: c.Tensors, received: c.Received, context: c.Context
    ) -> c.Tensors:
        return get_received_model(server, received)

    def build_views(self, server: c.Tensors, devices: c.Tensors) -> Views:
        return {"global": make_view(self.model, server)}

    def compute_metrics(self, server: c.Tensors, devices: c.Tensors) -> dict[str, Tensor]:
        """Return the share of the weights that are not zero."""
        return compute_density(server, self.model)
