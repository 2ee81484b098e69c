"""Start from weights that the server trains on its own samples before round 0.

The samples are those of `data.server`, which no device holds. Adam takes the steps. Weights depend
only on the model, the samples, the loss and these settings, not on the scenario's seed, and every
trial starts from them. If the server holds chosen classes, devices have a new task, and each trial
draws the last layer. The weights are kept in the user's cache folder, under a hash of all that they
depend on.

References
----------
Kingma, Ba 2015, "Adam: A Method for Stochastic Optimization", Algorithm 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pooch
import torch
from pydantic import Field
from torch import Tensor

from otafl.core import safetensors
from otafl.core.adam import BETAS, EPSILON
from otafl.core.contracts import Batch
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_family
from otafl.models.base import Model
from otafl.models.starts.base import ServerSamples, Start, check_weights
from otafl.user_code import loading
from otafl.user_code.custom_part import CustomPart

PRETRAINING = declare_family("pretraining", __name__)

VERSION = 2
"""Number of the training, which changes with what it computes."""


class PretrainedHere(Start):
    """Weights of central training on the server's samples.

    Examples
    --------
    `scenarios/pretrained_transformer.yaml` starts from such weights.
    """

    example: ClassVar[Mapping[str, Any]] = {
        "data.server": {"fraction": 0.3},
        "model.start.epochs": 1,
    }

    is_trained_here: ClassVar[bool] = True

    name: Literal["pretrained_here"] = "pretrained_here"
    epochs: int = Field(5, ge=1)
    """passes over the server's samples"""
    batch_size: int = Field(64, ge=1)
    """samples in a minibatch"""
    learning_rate: float = Field(0.001, gt=0)
    """step size of Adam"""

    def check(self, scenario: Any) -> Iterable[Problem]:
        if scenario.data.server is None:
            text = "needs samples that no device holds; set data.server, e.g. to {fraction: 0.2}"
            yield make_problem(text, "model.start", "data")

    def load(
        self, section: Any, model: Model, samples: ServerSamples | None
    ) -> Mapping[str, Tensor]:
        assert samples is not None  # by `check`
        path = Path(pooch.os_cache("otafl")) / "starts"
        # a hash of everything that the trained weights depend on
        own = self.model_dump(mode="json")
        made = section.model_dump(mode="json", exclude={"start"})
        code: dict[str, str] = {}
        if isinstance(section, CustomPart):
            code = loading.hash_sources(section.name, "model.name")
        shapes = {name: list(shape) for name, shape in model.shapes.items()}
        about = [VERSION, own, made, code, shapes, model.loss.model_dump(mode="json")]
        constants = (one.to(torch.complex128) for one in model.constants.values())  # any dtype
        found = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        for one in (*constants, samples.x, samples.y):
            found.update(f"{one.dtype} {list(one.shape)}".encode())
            found.update(one.cpu().contiguous().numpy().tobytes())
        path /= f"{found.hexdigest()}.safetensors"
        weights = None
        with contextlib.suppress(OSError, ValueError, UserError):  # not there, or damaged
            weights = check_weights(safetensors.read(path), model, str(path))
        if weights is None:
            weights = self.train(model, samples)
            with contextlib.suppress(OSError):  # the disk allows no cache
                path.parent.mkdir(parents=True, exist_ok=True)
                safetensors.write(weights, path)
        if samples.draws_head:
            weights = {name: one for name, one in weights.items() if name not in model.head}
        return weights

    def train(self, model: Model, samples: ServerSamples) -> dict[str, Tensor]:
        """Train a model on samples.

        Parameters
        ----------
        model : Model
            Model.
        samples : ServerSamples
            Samples.

        Returns
        -------
        dict of str to Tensor [*shape]
            Trained parameters, float32.

        Raises
        ------
        UserError
            If the training diverges.
        """
        x, y = samples.x.float(), samples.y
        y = y.float() if y.is_floating_point() else y
        streams = Streams([0], [0], x.device)
        params = model.draw_random_start(
            lambda name, shape: streams.draw_uniform(PRETRAINING / f"init/{name}", 0, shape).clone()
        )
        adam = torch.optim.Adam(list(params.values()), self.learning_rate, BETAS, EPSILON)
        for epoch in range(self.epochs):
            order = streams.draw_uniform(PRETRAINING / "order", epoch, (len(x),))[0].argsort()
            for chosen in order.split(self.batch_size):
                batch = Batch(x[chosen][None], y[chosen][None], None)
                loss, grads = model.compute_gradients(params, batch)
                for name, grad in grads.items():
                    params[name].grad = grad
                adam.step()
            if not bool(loss.isfinite().all()):
                raise UserError(
                    f"model.start.learning_rate: the training diverged at {self.learning_rate:g}; "
                    "use a smaller one"
                )
        return {name: one[0] for name, one in params.items()}
