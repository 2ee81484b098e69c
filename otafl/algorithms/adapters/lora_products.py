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

from otafl.algorithms.adapters.adapters import AdaptedLayer, compute_product
from otafl.algorithms.adapters.lora_factors import (
    BASE,
    compose_factors,
    draw_factors,
)
from otafl.algorithms.adapters.lora_settings import LoraSettings
from otafl.algorithms.deliveries import compute_delivered_shares, sum_rows
from otafl.core import contracts as c
from otafl.factorised.decomposition import svd


def average_products(
    layers: Sequence[AdaptedLayer], factors: c.Tensors, weight: Tensor, cohort: c.Cohort
) -> c.Tensors:
    """Average the products of the rows, as matrices [S, M, N] by the name of the weight."""
    return {
        layer.weight: sum_rows(
            compute_product(factors[f"A.{layer.weight}"], factors[f"B.{layer.weight}"]),
            weight,
            cohort,
        )
        for layer in layers
    }


def split_product(layer: AdaptedLayer, product: Tensor) -> c.Tensors:
    """Factorise a product [S, M, N] by its leading singular vectors, with the values in B."""
    u, s, vt = svd(product, full_matrices=False)
    r = min(layer.rank, s.shape[1])
    a, b = u[:, :, :r].mT, vt[:, :r].mT * s[:, None, :r]
    if r < layer.rank:  # a rank above the smaller side
        more = layer.rank - r
        a = torch.cat([a, a.new_zeros(len(a), more, layer.inputs)], 1)
        b = torch.cat([b, b.new_zeros(len(b), layer.outputs, more)], 2)
    return {f"A.{layer.weight}": a.contiguous(), f"B.{layer.weight}": b.contiguous()}


def aggregate_products(
    layers: Sequence[AdaptedLayer],
    server: c.Tensors,
    start: c.Tensors,
    received: c.Received,
    settings: LoraSettings,
    scale: float,
    context: c.Context,
) -> c.Tensors:
    r"""Aggregate the products of the devices.

    Parameters
    ----------
    layers : sequence of AdaptedLayer
        Layers.
    server : dict of str to Tensor [S, *shape]
        State of the server.
    start : dict of str to Tensor [n, *shape]
        Factors that each row started from.
    received : Received
        Increments of A and B of each row; with `aggregate: dense` mean increments of the products.
    settings : LoraSettings
        Mode and aggregation.
    scale : float
        alpha / r.
    context : Context
        Rows, and the round, for the draw of a new A.

    Returns
    -------
    dict of str to Tensor [S, *shape]
        New factors, and new sums "base.W".

    Notes
    -----
    FedEx-LoRA adds the residual of the means to the frozen weight:

    .. math::

        W_0 \leftarrow W_0 + \frac{\alpha}{r} \left( \sum_k w_k B_k A_k - \sum_k w_k B_k
        \sum_k w_k A_k \right)
    """
    cohort, dense = context.cohort.transmitters, settings.aggregate == "dense"
    weight = compute_delivered_shares(cohort.weight, received, () if dense else (0, 1), cohort)
    rows = start
    if not dense:
        assert received.per_device is not None
        sent = received.per_device[0] | received.per_device[1]
        rows = {name: block + sent[name] for name, block in start.items()}
    products = average_products(layers, rows, weight, cohort)
    state: c.Tensors = {}
    if dense or settings.aggregate == "svd":
        for layer in layers:
            product = products[layer.weight]
            if dense:
                product = product + received.mean[0][f"product.{layer.weight}"]
            state |= split_product(layer, product)
        return state
    if settings.aggregate == "stacking":
        state |= draw_factors(layers, context.streams, int(context.round) + 1)
    else:
        state |= {name: sum_rows(block, weight, cohort) for name, block in rows.items()}
        for name, (a, b) in compose_factors(layers, state).items():
            products[name] = products[name] - compute_product(a, b)
    for name, block in products.items():
        state[f"{BASE}.{name}"] = server[f"{BASE}.{name}"] + scale * block
    return state
