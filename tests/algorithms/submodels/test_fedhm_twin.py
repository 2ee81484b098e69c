"""FedHM against its looped twin: two trials of different step size, momentum and decays, five
devices at mixed levels and with few classes each, over two rounds; what they send, the base, the
weights, and lost devices.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.fedhm_bench import (
    HYPER,
    apply_weights,
    make_cohort,
    make_hyper,
    make_method,
    make_perceptron,
    run_round,
)
from twins import fedhm as twin
from twins.setting import local_data, minibatch

from otafl.algorithms.submodels.fedhm import FedHm
from otafl.core.contracts import LocalData, Tensors
from otafl.core.rng import Streams
from otafl.models.base import unflatten

pytestmark = pytest.mark.twin

WIDTHS = (6, 8, 7, 5)
SIZES = [[20, 10, 3, 30, 7], [9, 9, 25, 4, 40]]
LEVELS = [[0, 2, 1, 1, 0], [1, 2, 2, 2, 1]]
RATIOS = (1.0, 0.5, 0.25)
RANKS = {1.0: [None] * 3, 0.5: [4, 4, None], 0.25: [2, 2, None]}
ROUNDS, STEPS = 2, 3
NAMES = ("linear1", "linear2", "classifier")

CASES: list[dict[str, Any]] = [
    {"sends": sends, **others}
    for others in (
        {},
        {"base": "whole"},
        {"temperature": 0.5, "weight_rule": "inverse"},
        {"temperature": 5.0, "masked_loss": False},
        {"levels": (0.5, 0.25)},
    )
    for sends in ("factors", "product", "tangent")
]


@pytest.mark.parametrize(
    ("case", "lost"),
    [
        pytest.param(
            case,
            lost,
            id="-".join([*(map(str, case.values())), "lost" if lost else "all"]),
            marks=pytest.mark.slow if (place + bool(lost)) % 2 else (),
        )
        for place, case in enumerate(CASES)
        for lost in ((), (3, 5, 8))
    ],
)
def test_equals_the_looped_twin(case: dict[str, Any], lost: tuple[int, ...]) -> None:
    streams = Streams([5, 5], [0, 1], dtype=torch.float64)
    settings = {"levels": RATIOS, "masked_loss": True} | case
    ratios = settings["levels"]
    levels = [[min(level, len(ratios) - 1) for level in row] for row in LEVELS]
    cohort, data = make_cohort(levels), local_data(SIZES, 6, 5, streams, 4, STEPS)
    came = torch.ones(10, dtype=torch.bool)
    came[list(lost)] = False
    ours = make_method(make_perceptron(WIDTHS), **settings)
    values = make_hyper(2)
    server, devices = ours.init(streams, values)
    assert devices == {}
    heavy = apply_weights(ours, cohort)
    for t in range(ROUNDS):
        work = data.select_cohort(t, cohort)
        expected = [
            expected_round(ours, server, work, levels[s], heavy.weight, came, s, settings)
            for s in range(2)
        ]
        before = {name: block.clone() for name, block in server.items()}
        new, loss = run_round(ours, server, heavy, work, values, streams, came if lost else None)
        assert all(torch.equal(server[name], block) for name, block in before.items())
        server = new
        after = unflatten(server["model"], ours.model.shapes)
        for s, (weights, biases, losses) in enumerate(expected):
            for name, w, b in zip(NAMES, weights, biases, strict=True):
                np.testing.assert_allclose(after[f"{name}.weight"][s], w, rtol=0, atol=1e-11)
                np.testing.assert_allclose(after[f"{name}.bias"][s], b, rtol=0, atol=1e-11)
            np.testing.assert_allclose(loss[5 * s : 5 * s + 5], losses, rtol=1e-11)


def expected_round(
    ours: FedHm,
    server: Tensors,
    work: LocalData,
    levels: list[int],
    weight: torch.Tensor,
    came: torch.Tensor,
    s: int,
    settings: dict[str, Any],
) -> Any:
    batches = [work.draw_batch(step) for step in range(STEPS)]
    present = (work.count_classes() > 0).numpy()
    params = unflatten(server["model"], ours.model.shapes)
    devices = [
        twin.Device(
            RANKS[settings["levels"][levels[k]]],
            [minibatch(batch, 5 * s + k) for batch in batches],
            present[5 * s + k],
            alpha(settings, settings["levels"][levels[k]]),
            bool(came[5 * s + k]),
        )
        for k in range(5)
    ]
    ratio = torch.tensor([d.alpha for d in devices]) / weight[5 * s : 5 * s + 5]
    assert float(ratio.amax() - ratio.amin()) < 1e-6
    return twin.one_round(
        [params[f"{name}.weight"][s].numpy() for name in NAMES],
        [params[f"{name}.bias"][s].numpy() for name in NAMES],
        devices,
        twin.Settings(
            *(values[s] for values in HYPER.values()),
            masked_loss=settings["masked_loss"],
            base=settings.get("base", "truncated"),
            tangent=settings.get("sends") == "tangent",
            frame=(4, 4, None),
        ),
    )


def alpha(settings: dict[str, Any], ratio: float) -> float:
    """Section 2.3's weights as they are printed, not normalised."""
    tau = settings.get("temperature")
    if tau is None:
        return 1.0
    if settings.get("weight_rule") == "inverse":
        return math.exp(-1.0 / ratio / tau)
    return math.exp(ratio / tau)
