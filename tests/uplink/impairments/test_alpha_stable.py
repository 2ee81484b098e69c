"""Symmetric alpha-stable numbers, and what they do on the uplink."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.impaired_bench import K, deliver, make_impaired
from support.link_bench import make_bench, make_given

import otafl
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.uplink.noise import draw_alpha_stable


@pytest.mark.exact
@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_numbers_by_hand(alpha: float) -> None:
    """Of the angle V and the exponential W: 2 sin(V) sqrt(W) at alpha = 2, the normal number of Box
    and Muller, and sin(3 V / 2) / cos(V)^(2/3) (W / cos(V / 2))^(1/3) at 3/2."""
    streams = Streams([4], [0], dtype=torch.float64)
    index = torch.tensor([alpha], dtype=torch.float64)
    found = draw_alpha_stable(streams, "heavy_tails/0", 2, index, 50)[0].numpy()
    u, w = streams.draw_uniform("heavy_tails/0", 2, (2, 50))[0].numpy()
    v, w = math.pi * (u - 0.5), -np.log(w)
    expected = 2.0 * np.sin(v) * np.sqrt(w)
    if alpha == 1.5:
        expected = np.sin(1.5 * v) / np.cos(v) ** (2 / 3) * np.cbrt(w / np.cos(v / 2))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.exact
def test_each_received_real_has_its_own_number() -> None:
    """The estimate is the plain one and s xi / (K sqrt(eta)), each segment with its own eta, and
    the energy of s xi is saved."""
    link = make_given(make_bench("full", (0, 1)), 1, 5, 1, 10)
    plain, _, _ = deliver(link)
    settings = {"interference": "alpha_stable", "interference_db": 3.0, "tail_index": 1.4}
    got, _, report = deliver(make_impaired(link, **settings))
    alpha = torch.full((2,), 1.4, dtype=torch.float64)
    reals = plain.shape[1]
    scale = math.sqrt(0.25 * 10**0.3)
    tails = scale * draw_alpha_stable(link.streams, "heavy_tails/0", 3, alpha, reals).numpy()
    eta = report.saved_tensors["eta/0"].numpy()
    cell = np.arange(reals) // 10
    np.testing.assert_allclose(got - plain, tails / (K * np.sqrt(eta[:, cell])), rtol=1e-6)
    energy = [np.bincount(cell, row**2) for row in tails]
    np.testing.assert_allclose(report.saved_tensors["tails/0"].numpy(), energy)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("impairments", "sections", "said"),
    [
        ({"interference": "alpha_stable"}, {}, "needs interference_db"),
        (
            {"interference": "alpha_stable", "interference_db": 0, "interferers": 2},
            {},
            "interferers: got 2, but alpha_stable interference is the sum of all",
        ),
        (
            {"interference": "alpha_stable", "interference_db": 0},
            {"transport": "digital", "power": "genie"},
            "use transport: over_the_air",
        ),
        ({"interference": "alpha_stable", "interference_db": 0, "tail_index": 1}, {}, "tail_index"),
    ],
)
def test_what_cannot_be_is_refused(impairments: dict, sections: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        otafl.load_scenario({"name": "tails", **sections, "impairments": impairments})
