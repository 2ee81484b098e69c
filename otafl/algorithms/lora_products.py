"""Server steps on products of adapters, from each device's update or from dense sums.

The server knows what every device started from, its own factors truncated to the device's rank. So
it computes each device's product B A from the increments.

References
----------
Singhal et al. 2025, "FedEx-LoRA: Exact Aggregation for Federated and Efficient Fine-Tuning of Large
    Language Models", ACL.
Wang et al. 2024, "FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank
    Adaptations", NeurIPS.
Bai et al. 2024, "Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and
    Client Resources" (FlexLoRA), NeurIPS.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from otafl.algorithms.adapters import AdaptedLayer, compute_product
from otafl.algorithms.deliveries import get_delivered
from otafl.algorithms.lora_factors import truncate_ranks
from otafl.core.contracts import Cohort, Received, Tensors, unsqueeze_like
from otafl.factorised.decomposition import svd


def compute_row_weights(received: Received, cohort: Cohort, groups: Sequence[int]) -> Tensor:
    """Compute the weights [n] of the rows of which all groups are delivered, with sum one a trial.

    They are 0 for all rows of a trial without such a row.
    """
    weight = cohort.weight
    for group in groups:
        delivered = get_delivered(received, group)[1]
        if delivered is not None:
            weight = weight * delivered
    total = weight.new_zeros(cohort.num_trials).index_add_(0, cohort.trial, weight)
    return weight / total.clamp_min(1e-30)[cohort.trial]


def sum_rows(values: Tensor, weight: Tensor, cohort: Cohort) -> Tensor:
    """Sum weighted values [n, *shape] of the rows over each trial, [S, *shape]."""
    total = values.new_zeros(cohort.num_trials, *values.shape[1:])
    return total.index_add_(0, cohort.trial, values * unsqueeze_like(weight, values))


def recover_factors(
    server: Tensors, received: Received, cohort: Cohort, ranks: Tensor | None
) -> Tensors:
    """Recover the factors [n, *shape] of each row from the increments of the first two groups."""
    assert received.per_device is not None
    sent = received.per_device[0] | received.per_device[1]
    start = {name: server[name][cohort.trial] for name in sent}
    if ranks is not None:
        start = truncate_ranks(start, ranks)
    return {name: start[name] + block for name, block in sent.items()}


def average_products(
    layers: Sequence[AdaptedLayer], factors: Tensors, weight: Tensor, cohort: Cohort
) -> Tensors:
    """Average the products of the rows, as matrices [S, M, N] by the name of the weight."""
    return {
        layer.weight: sum_rows(
            compute_product(factors[f"A.{layer.weight}"], factors[f"B.{layer.weight}"]),
            weight,
            cohort,
        )
        for layer in layers
    }


def split_product(layer: AdaptedLayer, product: Tensor) -> Tensors:
    """Factorise a product [S, M, N] by its leading singular vectors, with the values in B."""
    u, s, vt = svd(product, full_matrices=False)
    r = min(layer.rank, s.shape[1])
    a, b = u[:, :, :r].mT, vt[:, :r].mT * s[:, None, :r]
    if r < layer.rank:  # a rank above the smaller side
        more = layer.rank - r
        a = torch.cat([a, a.new_zeros(len(a), more, layer.inputs)], 1)
        b = torch.cat([b, b.new_zeros(len(b), layer.outputs, more)], 2)
    return {f"A.{layer.weight}": a.contiguous(), f"B.{layer.weight}": b.contiguous()}
