"""Average all parameters but those of normalisation layers, which devices keep (FedBN).

Local SGD on all parameters, then the mean of all but those of normalisation layers, which stay at
the device and are never sent.

The personal model is the averaged parameters with the device's normalisation, what a device has
once it received them, after aggregation. There is no global model, as nobody has parameters of
normalisation for it.

References
----------
Li, Jiang, Zhang, Kamp, Dou 2021, "FedBN: Federated Learning on Non-IID Features via Local Batch
    Normalization", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from otafl.algorithms.base import Algorithm, AveragedSettings, Outcome, Views
from otafl.algorithms.parameters import increment_, named, sgd_
from otafl.algorithms.partly_shared import KEPT, joined, personal_view, shared_shapes, split_start
from otafl.core.contracts import Broadcast, Hyper, LocalContext, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import Model


class FedBn(Algorithm):
    """Keeps server block "model" [S, P]: all parameters but those of normalisation layers, and
    device blocks "personal.<name>": those."""

    own_state: ClassVar[str] = "the parameters of normalisation layers: they are never sent"

    needs_norms: ClassVar[bool] = True
    averages: ClassVar[bool] = True

    apart = True

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
                "algorithm.name: 'fedbn' keeps the parameters of normalisation layers at the "
                "devices, and the model has none; conv_net, resnet, vgg or a torch.nn.Module with "
                "GroupNorm or LayerNorm would do, or fedavg"
            )
        self.shapes = shared_shapes(model, model.norms)

    def init(self, streams: Streams, hyper: Hyper) -> tuple[Tensors, Tensors]:
        return split_start(self.model, self.model.norms, streams)

    def local(self, broadcast: Broadcast, devices: Tensors, context: LocalContext) -> Outcome:
        params = joined(broadcast, devices, self.shapes)
        loss = sgd_(self.model, params, context.gather_hyper("learning_rate"), context)
        kept = named(KEPT, {name: params[name] for name in self.model.norms})
        return kept, increment_(params, broadcast, self.shapes), loss

    def views(self, server: Tensors, devices: Tensors) -> Views:
        return {"personal": personal_view(self.model, server, devices, self.shapes)}
