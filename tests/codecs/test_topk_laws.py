"""The memory of error feedback.

Mutations that make a test here fail: a residual that is forgotten.
"""

from __future__ import annotations

import pytest
import torch
from support.codec_bench import received

from otafl.codecs.topk import TopK
from otafl.core.contracts import Cohort, Group
from otafl.core.rng import Streams

pytestmark = pytest.mark.law


def everyone(devices: int) -> Cohort:
    device = torch.arange(devices)
    zero = torch.zeros_like(device)
    return Cohort.fresh(zero, device, torch.ones(devices).double(), (devices,), devices)


def test_error_feedback_bounds_what_is_left_out() -> None:
    """Stich et al., Lemma 3.3 in short: the memory of top-k of n on updates of norm G stays within
    2 n / k G, whatever the updates; without feedback what was never sent grows without bound. 400
    rounds of a fixed update whose small reals are never among the largest."""
    streams = Streams([3], [0], dtype=torch.float64)
    x = torch.full((1, 20), 0.1).double()
    x[0, :2] = 1.0
    codec, memory = TopK(TopK.Settings(keep=0.1), {}, streams), {}
    memory = codec.init((Group({"a": x}),))
    sent = torch.zeros_like(x)
    for round in range(400):
        (coded,), memory = codec.encode((Group({"a": x}),), memory, everyone(1), round, streams)
        memory = received(codec, (coded,), memory)
        sent += coded.blocks["a"]
        assert memory["rest/0"].norm() <= 2 * 20 / 2 * x.norm()
    torch.testing.assert_close(sent / 400, x, rtol=0, atol=2 * 20 / 2 * float(x.norm()) / 400)
    assert (sent[0, 2:] > 0).all()
