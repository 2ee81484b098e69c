"""The over-the-air uplink in general: several antennas, coherence blocks and sub-carrier groups,
both quadratures, deviations from a mean, against a simulation of the complex baseband written
symbol by symbol.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.impaired_bench import K, P, deliver, make_impaired, map_cells
from support.link_bench import WEIGHTS, add_setup, draw_updates, make_bench, make_cohort, make_given

from otafl.core.contracts import Group
from otafl.receivers.base import Eigen
from otafl.uplink import noise

pytestmark = pytest.mark.exact


CASES = [
    ("full", (None, 1, 1), True, "mean"),
    ("ci", (None, 1, 4), False, "none"),
    ("tci", (10, 5, 1), False, "mean"),
    ("full", (16, 3, 4), True, "none"),
    ("ci", (1, 41, 1), False, "mean"),
    ("tci", (2, 21, 2), True, "mean"),
]
"""Policy, grid of cells, whether symbols have two quadratures, and the weighting."""


@pytest.mark.parametrize(("policy", "grid", "quadrature", "weighting"), CASES)
def test_against_the_complex_baseband(
    policy: str, grid: tuple[int | None, int, int], quadrature: bool, weighting: str
) -> None:
    """y_a[i] = sum_k sqrt(gain) h_ka[i] p_k[i] x_k[i] + z_a[i] of three antennas, combined by the
    first eigenvector of each cell, from the saved p and eta; imperfect estimates, residual
    phases."""
    block_symbols, blocks, groups = grid
    link = make_bench(policy, (0, 1), variance=0.1, quadrature=quadrature)
    link = make_given(add_setup(link, receiver=Eigen()), 3, blocks, groups, block_symbols)
    link = make_impaired(link, residual_phase_rad=0.4)
    got, x, report = deliver(link, weighting)
    symbols = -(-P // 2) if quadrature else P
    cell = map_cells(block_symbols, blocks, groups, symbols)
    used = sorted(set(cell))
    saved = {name.split("/")[0]: value.numpy() for name, value in report.saved_tensors.items()}
    channel = link.channel.get_state(3)
    root, fading = channel.gain.sqrt()[..., None, None, None], channel.extend_to(symbols)
    h = (root * fading).flatten(3).numpy()
    estimate = link.transport.parts.alignment.csi.estimate(fading, channel.gain, 3)
    h_hat = (root * estimate).flatten(3).numpy()
    phase = noise.draw_phases(link.transport.parts.alignment.impairments, K, 3).numpy()
    budget = link.transport.budget.budget.numpy()
    drawn = link.draw_noise(P, 3)
    w = np.array(WEIGHTS) / sum(WEIGHTS)
    for s in range(2):
        u = x[s]
        if quadrature:
            u = u[:, :symbols] + 1j * np.pad(u[:, symbols:], ((0, 0), (0, 2 * symbols - P)))
        sent = u * (K * w[:, None] if weighting == "mean" else 1.0)
        np.testing.assert_allclose(saved["m"][s, 0], (np.abs(sent) ** 2).mean(1))
        for q, c in enumerate(used):
            here = np.flatnonzero(cell == c)
            a = np.sqrt(budget[s]) * h_hat[s, :, :, c].T  # [A, K]
            f = np.linalg.eigh(a @ a.conj().T)[1][:, -1]
            f = f * np.exp(-1j * np.angle(f[0]))
            p = saved["p"][s, q] * np.exp(1j * phase[s])
            clean = h[s, :, :, c].T @ (p[:, None] * sent[:, here])  # [A, symbols here]
            combined = f.conj() @ clean / math.sqrt(saved["eta"][s, q])
            on = saved["active"][s, q]
            unit = 1 / (K * w[on].sum()) if weighting == "mean" else 1.0
            spread = 1 / math.sqrt(saved["eta"][s, q])
            expected = (combined.real + drawn[s, here] * spread) * unit
            np.testing.assert_allclose(got[s, here], expected, rtol=1e-5, atol=1e-6)
            if quadrature:
                second = here[here + symbols < P]
                keep = here + symbols < P
                expected = (combined.imag[keep] + drawn[s, second + symbols] * spread) * unit
                np.testing.assert_allclose(got[s, second + symbols], expected, rtol=1e-5, atol=1e-6)
            scalar = f.conj() @ h[s, :, :, c].T * np.exp(1j * phase[s])
            np.testing.assert_allclose(saved["h"][s, q], scalar, rtol=1e-5, atol=1e-6)
    assert report.symbols.tolist() == [symbols] * 2
    energy = (np.abs(saved["p"]) ** 2).max(1) * saved["m"][:, 0]
    assert (report.power.numpy() <= energy + 1e-9).all()


@pytest.mark.parametrize(("normalise", "quadrature"), [("payload", True), ("block", False)])
def test_deviations_from_the_mean(normalise: str, quadrature: bool) -> None:
    """What is sent has mean zero in a normalised stretch, and less power; the estimate without
    noise is the same, and the means are counted."""
    blocks = {"a": draw_updates(K, 6) + 3.0, "b": draw_updates(K, 11, 1) - 7.0}
    reports = []
    for centre in (False, True):
        options = {"normalise": normalise, "centre": centre, "quadrature": quadrature}
        link = make_bench("ci", snr_db=300.0, **options)
        received, report = link.deliver((Group(blocks),), make_cohort(weight=WEIGHTS))
        w = torch.tensor(WEIGHTS, dtype=torch.float64)
        for name, block in blocks.items():
            mean = (w[:, None] * block).sum(0) / w.sum()
            torch.testing.assert_close(received.mean[0][name][0], mean)
        reports.append(report)
    plain, centred = reports
    assert (centred.saved_tensors["m/0"] < plain.saved_tensors["m/0"]).all()
    assert torch.equal(centred.side_symbols, 2 * plain.side_symbols)
    if normalise == "block":
        rows = (K * w / w.sum())[:, None] * blocks["b"]
        torch.testing.assert_close(centred.saved_tensors["m/0"][0, 1], rows.var(1, correction=0))
