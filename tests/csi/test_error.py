"""A channel that is known with an error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.csi_bench import DOUBLE, Recorded, compute_link_budget, draw_normal, make_csi

from otafl.core.contracts import ChannelState
from otafl.core.rng import Streams
from otafl.csi.error import NormalError

TRIALS, DEVICES = 2, 5


def made(variance: tuple[float, ...] = (0.3, 0.01)) -> NormalError:
    ones = torch.ones(TRIALS, DEVICES, dtype=DOUBLE)
    channel = Recorded(ChannelState(draw_normal(TRIALS, DEVICES, 1, 1, 1), ones))
    streams = Streams([5] * TRIALS, range(TRIALS), dtype=DOUBLE)
    hyper = {"variance": torch.tensor(variance, dtype=DOUBLE)}
    return make_csi("error", channel, compute_link_budget(ones, ones), streams, hyper)


@pytest.mark.twin
def test_a_device_has_its_own_part_of_the_stream() -> None:
    h, one = draw_normal(TRIALS, DEVICES, 2, 3, 4), made()
    got = one.estimate(h, torch.ones(TRIALS, DEVICES), 7)
    for s, k in ((0, 0), (1, 3)):
        pair = torch.tensor([s]), torch.tensor([k])
        draw = one.streams.draw_device_normal("csi_error", 7, *pair, (2, 3, 4, 2))[0].numpy()
        error = (draw[..., 0] + 1j * draw[..., 1]) * np.sqrt((0.3, 0.01)[s] / 2)
        np.testing.assert_allclose(got[s, k].numpy(), h[s, k].numpy() + error, rtol=1e-12)
    assert one.variance.tolist() == [0.3, 0.01]
