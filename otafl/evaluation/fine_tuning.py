"""Fine-tuning of models before a test.

Each device takes a few SGD steps with a copy of its model, on minibatches of its own training
samples. The copy is discarded after the test.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import Batch, FineTuneSpec, PredictFn, Tensors, unsqueeze_like
from otafl.data.training_data import TrainingData
from otafl.losses.base import Loss


@dataclass(frozen=True)
class FineTuner:
    """The fine-tuning steps of one evaluation.

    tunings: applied in order, for example Per-FedAvg's own and then the trick FT of pFedBreD
    (appendix C.4).
    """

    loss: Loss
    predict_fn: PredictFn
    tunings: tuple[FineTuneSpec, ...]
    data: TrainingData
    round: int

    def __call__(self, params: Tensors, flat_index: Tensor) -> Tensors:
        """Return the parameters [n, *shape] of the devices cells [n], after the steps."""
        step = 0
        for tuning in self.tunings:
            rate = tuning.learning_rate[flat_index // self.data.num_devices]
            for _ in range(tuning.num_steps):
                batch = self.data.draw_test_batch(self.round, step, flat_index)
                params = _take_step(self.loss, self.predict_fn, params, batch, rate)
                step += 1
        return params


def _take_step(
    loss_fn: Loss, predict: PredictFn, params: Tensors, batch: Batch, rate: Tensor
) -> Tensors:
    """Return the parameters after a step of SGD; integers, such as a row's trial, stay."""
    with torch.inference_mode(False), torch.enable_grad():  # which saves no inference tensors
        copies = {name: value.clone() for name, value in params.items()}
        leaves = {n: one.requires_grad_() for n, one in copies.items() if one.is_floating_point()}
        weight = None if batch.weight is None else batch.weight.clone()
        batch = Batch(batch.x.clone(), batch.y.clone(), weight)
        loss = loss_fn.compute_mean(predict(copies, batch.x), batch)
        found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
    grads = dict(zip(leaves, found, strict=True))
    return {
        name: value
        if (grad := grads.get(name)) is None
        else value - unsqueeze_like(rate, value) * grad
        for name, value in params.items()
    }
