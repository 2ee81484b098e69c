"""Training on each device alone without communication, the control of personalised methods.

SGD on each device's own samples. Nothing is broadcast or sent, so it takes no channel use. There
are only personal models, and no global model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from otafl.algorithms.base import Algorithm, Outcome
from otafl.algorithms.parameters import add_prefix, count_step_flops, run_sgd_, select_prefix
from otafl.algorithms.shared_settings import declare_personal_rate
from otafl.core import settings
from otafl.core.contracts import (
    Broadcast,
    Context,
    Hyper,
    LocalContext,
    Received,
    Tensors,
    Workload,
)
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams


class LocalOnly(Algorithm):
    """Local training without communication.

    The server has no state. The device's tensors are "personal.NAME", initially equal within a
    trial.

    Whatever the uplink does, devices keep the personal model: it is trained for the device
    alone.

    Examples
    --------
    `studies/pfedbred/pfedbred_table1_mclr.yaml` compares it with personalised methods.
    """

    device_models = ("personal",)

    is_per_device = True

    excludes: ClassVar[Mapping[str, str]] = {
        "merging": "trains no common model",
    }

    class Settings(settings.Settings):
        example: ClassVar[Mapping[str, Any]] = {"data.own_test": True}

        name: Literal["local_only"] = "local_only"
        personal_learning_rate: float = declare_personal_rate()

        def check(self, scenario: Any) -> Iterator[Problem]:
            if scenario.robust.is_active:
                text = "'local_only' sends no updates; use another algorithm, such as fedavg"
                yield make_problem(text, "algorithm", "robust")

    def count_flops(self, workload: Workload) -> np.ndarray:
        """Count the steps; nothing is sent."""
        return count_step_flops(self.model, workload, per_param_round=0.0)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        return {}, super().init(streams, hyper)[1]

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        params = select_prefix(devices, "personal")
        loss = run_sgd_(self.model, params, context.gather_hyper("personal_learning_rate"), context)
        return add_prefix("personal", params), (), loss

    def update_server(self, server: Tensors, received: Received, context: Context) -> Tensors:
        return server
