"""HeteroFL and FedRolex against their looped twin, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.level_rounds import HYPER, STEPS, WIDTHS, LevelRounds
from support.rounding import assert_agree
from torch import Tensor
from twins import heterofl as twin
from twins.setting import minibatch, mlp

from otafl.algorithms.submodels.narrow_networks import FedRolex, HeteroFL
from otafl.algorithms.submodels.width_slices import apply_masked_mean
from otafl.core.contracts import Received, Workload
from otafl.core.rng import Streams
from otafl.models.base import unflatten
from otafl.models.network import Network

pytestmark = pytest.mark.twin

LEVEL = [[0, 1, 2, 2, 1], [2, 1, 1, 2, 2]]
"""The second trial has nobody of the largest size."""
KEPT = [[8, 5], [4, 3], [2, 2]]
"""Channels of each hidden layer at widths 1, .5, .25, rounded up."""
LEVELS = (1.0, 0.5, 0.25)


class Run(LevelRounds):
    """Two trials of five devices of mixed sizes over a perceptron."""

    def __init__(self, kind: type[HeteroFL | FedRolex] = HeteroFL, **settings: Any) -> None:
        settings = {"levels": LEVELS, "milestones": (2,), **settings}
        self.method = kind(kind.Settings(**settings), mlp(WIDTHS), 5)
        super().__init__(self.method, LEVEL)

    def devices(self, trial: int, t: int) -> list[twin.Device]:
        work = self.data.select_cohort(t, self.cohort)
        batches = [work.draw_batch(step) for step in range(STEPS)]
        rows = range(5 * trial, 5 * trial + 5)
        present = (work.count_classes() > 0).numpy()
        level = self.cohort.capacity_level.tolist()
        return [
            twin.Device(KEPT[level[row]], [minibatch(b, row) for b in batches], present[row])
            for row in rows
        ]

    def settings(self, trial: int, t: int) -> twin.Settings:
        config = self.method.settings
        step, momentum, decay = (values[trial] for values in HYPER.values())
        return twin.Settings(
            step * (0.1 if t >= 2 else 1.0), momentum, decay, config.clip_norm, config.masked_loss
        )


def numbers(model: Network, flat: Tensor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights and biases of a perceptron's parameters [P]."""
    params = unflatten(flat[None], model.shapes)
    layers = range(len(params) // 2)
    return (
        [params[f"layer{i}.weight"][0].numpy() for i in layers],
        [params[f"layer{i}.bias"][0].numpy() for i in layers],
    )


def assert_same(model: Network, flat: Tensor, weights: Any, biases: Any) -> None:
    ours = numbers(model, flat)
    for mine, expected in zip(ours[0] + ours[1], [*weights, *biases], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "first", "settings"),
    [
        (HeteroFL, 0, {}),
        (HeteroFL, 0, {"clip_norm": None}),
        (HeteroFL, 0, {"masked_loss": False, "clip_norm": 0.5}),
        (FedRolex, 6, {}),
    ],
)
def test_equals_the_looped_twin(kind: Any, first: int, settings: dict[str, Any]) -> None:
    """FedRolex from round 6 on, so that windows pass the last of 8 channels and of 5."""
    one = Run(kind, **settings)
    whole = one.method.submodels[0]
    for t in range(first, first + 4):
        offset = t if kind is FedRolex else 0
        expected = [
            twin.one_round(
                *numbers(whole, one.server["model"][s]),
                one.devices(s, t),
                one.settings(s, t),
                offset,
            )
            for s in range(2)
        ]
        loss = one.round(one.cohort, t)
        assert one.server.get("round", torch.tensor([t + 1])).eq(t + 1).all()
        for s, (weights, biases, losses) in enumerate(expected):
            assert_same(whole, one.server["model"][s], weights, biases)
            np.testing.assert_allclose(loss[5 * s : 5 * s + 5], losses, rtol=1e-12)


def test_step_of_the_server_by_hand() -> None:
    """Where nothing came the model stays, whatever is said to have been received."""
    model = torch.tensor([[1.0, 2.0, 3.0]])
    mean, count = torch.tensor([[0.5, 9.0, -1.0]]), torch.tensor([[1.0, 0.0, 0.25]])
    received = Received(({"model": mean},), ({"model": count},), None, None)
    assert apply_masked_mean(model, received).tolist() == [[1.5, 2.0, 2.0]]
    nothing = Received(({"model": mean},), (torch.zeros(1),), None, None)
    assert apply_masked_mean(model, nothing).tolist() == [[1.0, 2.0, 3.0]]


def test_levels_and_what_they_are_charged() -> None:
    one = Run()
    sizes = [6 * a + a + a * b + b + 3 * b + 3 for a, b in KEPT]
    assert [level.num_params for level in one.method.levels] == sizes
    broadcast = one.method.broadcast(one.server, one.cohort)
    assert broadcast.coordinates_per_row is not None
    assert broadcast.coordinates_per_row.tolist() == [
        sizes[level] for row in LEVEL for level in row
    ]
    load = Workload(2, 4, np.array([3.0]))
    assert one.method.count_flops(load) == one.method.levels[0].flops_fn(load)
    (group,) = one.local(one.cohort, 0)[0]
    share = group.add_known_fraction().known_fraction
    masked = one.data.select_cohort(0, one.cohort).count_classes() == 0
    for row, level in enumerate(one.cohort.capacity_level.tolist()):
        missing = int(masked[row].sum()) * (KEPT[level][1] + 1)
        assert float(share[row]) * sizes[0] == pytest.approx(sizes[level] - missing)


def test_views_are_the_leading_channels() -> None:
    one = Run()
    views = one.method.build_views(one.server, {})
    assert list(views) == ["global", "level0", "level1", "level2"]
    whole, (w, b) = (
        one.method.submodels[0],
        numbers(one.method.submodels[0], one.server["model"][1]),
    )
    assert torch.equal(views["global"].params["model"], one.server["model"])
    for level, (first, second) in enumerate(KEPT):
        own = [w[0][:, :first], w[1][:first, :second], w[2][:second]]
        size = one.method.submodels[level]
        flat = views[f"level{level}"].params["model"]
        assert_same(size, flat[1], own, [b[0][:first], b[1][:second], b[2]])
        x = torch.linspace(-1, 1, 24, dtype=torch.float64).view(1, 4, 6)
        expected = size.logits(unflatten(flat, size.shapes), x)
        assert_agree(views[f"level{level}"].predict_fn({"model": flat}, x), expected)
        assert views[f"level{level}"].moments_fn is None
    assert whole.num_params == one.server["model"].shape[1]


def test_views_are_what_the_next_round_sends() -> None:
    """Of each trial's own next round."""
    method = FedRolex(FedRolex.Settings(levels=(1.0, 0.5, 0.25)), mlp(WIDTHS), 4)
    streams = Streams([5, 5], [0, 1], dtype=torch.float64)
    server = method.init(streams, {})[0]
    server["round"] = torch.tensor([6, 9])
    views = method.build_views(server, {})
    assert list(views) == ["global", "level0", "level1", "level2"]
    for name in ("global", "level0"):
        assert torch.equal(views[name].params["model"], server["model"])
    size = method.submodels[1]
    for s, (first, second) in enumerate([([6, 7, 0, 1], [1, 2, 3]), ([1, 2, 3, 4], [4, 0, 1])]):
        w, b = numbers(method.submodels[0], server["model"][s])
        ours, biases = numbers(size, views["level1"].params["model"][s])
        np.testing.assert_array_equal(ours[0], w[0][:, first])
        np.testing.assert_array_equal(ours[1], w[1][np.ix_(first, second)])
        np.testing.assert_array_equal(ours[2], w[2][second])
        np.testing.assert_array_equal(biases[1], b[1][second])
