"""FedRolex: which channels a slice has, by hand and in networks of every kind; a round against the
looped twin.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import heterofl as twin
from twins.setting import everyone, local_data, minibatch, mlp

from otafl.algorithms.submodels.heterofl import FedRolex
from otafl.algorithms.submodels.width_slices import (
    make_width_fn,
    slice_params,
    split_window,
    write_slices_,
)
from otafl.core.contracts import LocalContext, Payload, Received
from otafl.core.rng import Streams
from otafl.models.base import unflatten
from otafl.models.layer_steps import Conv, Linear, MaxPool, MeanPool, Norm, Relu
from otafl.models.network import Network
from otafl.models.step_contract import Axis, Step
from otafl.models.step_lists import Residual
from otafl.uplink.groups import compute_error_free, make_signal

pytestmark = pytest.mark.twin

WIDTHS = (6, 8, 5, 3)
SIZES = [[20, 10, 2, 30], [9, 9, 25, 4]]
LEVEL = [[0, 1, 2, 2], [2, 1, 1, 2]]
KEPT = [[8, 5], [4, 3], [2, 2]]
HYPER = {"learning_rate": [0.3, 0.05], "momentum": [0.9, 0.5], "weight_decay": [0.01, 0.1]}


def channels_of(wide: Axis, narrow: Axis, offset: int) -> list[int]:
    """Where the entries of the narrow side lie on the wide one."""
    place = torch.arange(wide.channels * wide.repeat)
    out = torch.full((narrow.channels * narrow.repeat,), -1)
    for (_, here), (_, there) in split_window((wide,), (narrow,), offset):
        out[here] = place[there]
    return out.tolist()


def test_windows_by_hand() -> None:
    assert channels_of(Axis(4), Axis(3), 0) == [0, 1, 2]
    assert channels_of(Axis(4), Axis(3), 1) == [1, 2, 3]
    assert channels_of(Axis(4), Axis(3), 2) == [2, 3, 0]
    assert channels_of(Axis(4), Axis(3), 3) == [3, 0, 1]
    assert channels_of(Axis(4), Axis(3), 6) == [2, 3, 0]
    assert channels_of(Axis(4), Axis(4), 2) == [0, 1, 2, 3]  # all of them, in their order
    assert channels_of(Axis(3, 2), Axis(2, 2), 1) == [2, 3, 4, 5]
    assert channels_of(Axis(3, 2), Axis(2, 2), 2) == [4, 5, 0, 1]  # two pixels a channel


@pytest.mark.parametrize("kept", [1, 3, 4])
def test_every_channel_is_trained_equally_often(kept: int) -> None:
    counts = np.zeros(5, int)
    for t in range(7, 12):  # as many rounds as channels
        counts[channels_of(Axis(5), Axis(kept), t)] += 1
    assert counts.tolist() == [kept] * 5


def residual() -> Network:
    """Convolutions with normalisation, blocks with and without a shortcut, flattened pixels."""

    def block(name: str, inputs: int, outputs: int, shortcut: tuple[Step, ...]) -> Residual:
        body = (
            Conv(f"{name}1", inputs, outputs),
            Norm(f"{name}n1", outputs),
            Relu(),
            Conv(f"{name}2", outputs, outputs),
            Norm(f"{name}n2", outputs),
        )
        return Residual(body, shortcut)

    steps = (
        Conv("a", 2, 4, bias=True, cut=False),
        Relu(0.1),
        block("b", 4, 4, ()),
        Relu(),
        block("c", 4, 6, (Conv("s", 4, 6, 1, padding=0),)),
        MaxPool(2),
        Linear("d", 6, 5, repeat=4),
        Relu(),
        Linear("e", 5, 3, last=True),
    )
    return Network((2, 4, 4), steps)


def pooled() -> Network:
    steps = (Conv("a", 2, 7, cut=False), Norm("n", 7), Relu(), Conv("b", 7, 5), Relu())
    return Network((2, 4, 4), (*steps, MeanPool(), Linear("c", 5, 3, last=True)))


@pytest.mark.parametrize("wide", [residual(), pooled()], ids=["residual", "pooled"])
@pytest.mark.parametrize("offset", [0, 7])
def test_a_slice_among_zeros_is_the_narrow_network(wide: Network, offset: int) -> None:
    """The wide network whose other parameters are 0 scores as the narrow one, so windows agree
    from layer to layer, over blocks and over flattened pixels."""
    streams = Streams([1, 2], [0, 0], dtype=torch.float64)
    narrow = wide.build_network(make_width_fn(0.5, "ceil"))
    own = {
        name: streams.draw_normal(name, 0, shape).clone() for name, shape in narrow.shapes.items()
    }
    rows = torch.tensor([0, 1])
    whole = {name: own[name].new_zeros(2, *shape) for name, shape in wide.shapes.items()}
    write_slices_(wide, narrow, own, whole, rows, offset)
    x = streams.draw_normal("x", 0, (6, 32))
    torch.testing.assert_close(wide.logits(whole, x), narrow.logits(own, x))
    back = slice_params(wide, narrow, whole, rows, offset)
    assert all(torch.equal(back[name], own[name]) for name in own)
    assert sum(int(b.count_nonzero()) for b in whole.values()) == 2 * narrow.num_params


def numbers(model: Network, flat: Tensor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    params = unflatten(flat[None], model.shapes)
    layers = range(len(params) // 2)
    return (
        [params[f"layer{i}.weight"][0].numpy() for i in layers],
        [params[f"layer{i}.bias"][0].numpy() for i in layers],
    )


def deliver(payload: Payload, weights: Tensor, cohort: object) -> Received:
    """What an uplink without error gives."""
    pairs = [compute_error_free(make_signal(g, replace(cohort, weight=weights))) for g in payload]  # type: ignore[type-var]
    return Received(tuple(mean for mean, _ in pairs), tuple(n for _, n in pairs), None, None)


def test_equals_the_looped_twin() -> None:
    """From round 6 on, so that windows pass the last of 8 channels and of 5."""
    config = FedRolex.Settings(levels=(1.0, 0.5, 0.25))
    streams = Streams([5, 5], [0, 1], dtype=torch.float64)
    method = FedRolex(config, mlp(WIDTHS), 4)
    share = torch.tensor(SIZES, dtype=torch.float64)
    cohort = replace(everyone(share), capacity_level=torch.tensor(LEVEL).flatten())
    data = local_data(SIZES, WIDTHS[0], WIDTHS[-1], streams, 4, 3)
    hyper = {name: torch.tensor(value, dtype=torch.float64) for name, value in HYPER.items()}
    server, devices = method.init(streams, hyper)
    assert devices == {}
    whole = method.submodels[0]
    for t in range(6, 10):
        work = data.select_cohort(t, cohort)
        batches = [work.draw_batch(step) for step in range(3)]
        present = (work.count_classes() > 0).numpy()
        expected = []
        for s in range(2):
            own = [
                twin.Device(
                    KEPT[LEVEL[s][k]],
                    [minibatch(b, 4 * s + k) for b in batches],
                    present[4 * s + k],
                )
                for k in range(4)
            ]
            step, momentum, decay = (values[s] for values in HYPER.values())
            settings = twin.Settings(step, momentum, decay, 1.0)
            expected.append(twin.one_round(*numbers(whole, server["model"][s]), own, settings, t))
        broadcast = method.broadcast(server, cohort).expand_rows(cohort, 0, cohort.num_rows)
        context = LocalContext(cohort, hyper, streams, t, work)
        _, payload, loss = method.run_local_update(broadcast, {}, context)
        received = deliver(payload, method.compute_weights(context), cohort)
        server = method.update_server(server, received, context)
        assert server["round"].tolist() == [t + 1] * 2
        for s, (weights, biases, losses) in enumerate(expected):
            ours = numbers(whole, server["model"][s])
            for mine, theirs in zip(ours[0] + ours[1], weights + biases, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
            np.testing.assert_allclose(loss[4 * s : 4 * s + 4], losses, rtol=1e-12)


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
