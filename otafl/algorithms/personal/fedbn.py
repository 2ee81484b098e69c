"""Averaging of all parameters except those of normalisation layers, which devices keep (FedBN).

Devices train all parameters by local SGD and send all except those of normalisation layers, which
the server averages. The personal model is the averaged parameters with the device's own
normalisation, as the device has them after aggregation. There is no global model, because the
server has no normalisation parameters.

References
----------
Li, Jiang, Zhang, Kamp, Dou 2021, "FedBN: Federated Learning on Non-IID Features via Local Batch
    Normalization", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from otafl.algorithms.base import Algorithm, Outcome, Views
from otafl.algorithms.parameters import add_prefix, build_increment_, run_sgd_
from otafl.algorithms.personal.partly_shared import (
    LOCAL_PREFIX,
    get_shared_shapes,
    join_params,
    make_personal_view,
    split_start,
)
from otafl.algorithms.shared_settings import AveragedSettings
from otafl.core.contracts import Broadcast, Hyper, LocalContext, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import Model


class FedBn(Algorithm):
    """Federated averaging with local normalisation layers.

    The server's tensor "model" [S, P] holds all parameters except those of normalisation layers,
    which are the device's tensors "personal.NAME".

    Whatever the uplink does, devices keep the parameters of normalisation layers: they are
    never sent.

    Examples
    --------
    `docs/personalised.md` has a scenario with `algorithm: fedbn` and `model: conv_net`.
    """

    averages_increments: ClassVar[bool] = True

    is_per_device = True

    class Settings(AveragedSettings):
        example: ClassVar[Mapping[str, Any]] = {
            "model.name": "conv_net",
            "model.channels": [8, 16],
        }

        name: Literal["fedbn"] = "fedbn"

    def __init__(self, settings: Any, model: Model, devices: int) -> None:
        super().__init__(settings, model, devices)
        if not model.norms:
            raise UserError(
                "algorithm.name: 'fedbn' needs a model with normalisation layers, and the model "
                "has none; use conv_net, resnet, vgg, a torch.nn.Module with GroupNorm or "
                "LayerNorm, or algorithm: fedavg"
            )
        self.shapes = self.sent_shapes = get_shared_shapes(model, model.norms)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        return split_start(self.model, self.model.norms, streams)

    def run_local_update(
        self, broadcast: Broadcast, devices: Tensors, context: LocalContext
    ) -> Outcome:
        params = join_params(broadcast, devices, self.shapes)
        loss = run_sgd_(self.model, params, context.gather_hyper("learning_rate"), context)
        kept = add_prefix(LOCAL_PREFIX, {name: params[name] for name in self.model.norms})
        return kept, build_increment_(params, broadcast, self.shapes), loss

    def build_views(self, server: Tensors, devices: Tensors) -> Views:
        return {"personal": make_personal_view(self.model, server, devices, self.shapes)}
