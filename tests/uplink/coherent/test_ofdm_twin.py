"""OFDM samples beside plain loops, and beside Sionna's modulator and filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from twins import ofdm as twin

from otafl.core.contracts import ChannelState, Cohort, Paths
from otafl.uplink import noise
from otafl.uplink.coherent.ofdm_grid import Arrivals, lay_out
from otafl.uplink.coherent.ofdm_samples import to_carriers, windows
from otafl.validation.bench import Bench, Rig

pytestmark = pytest.mark.twin

K, S, P = 3, 2, 50
BANDWIDTH_HZ = 2e7


def rig(transport: dict[str, Any], **keys: Any) -> Rig:
    base = {"channel": {"name": "awgn", "snr_db": 200.0}, "transport": transport}
    return Bench().build_rig(K, S, base | keys)


def sum_of_loops(link: Rig, x: torch.Tensor, report: Any, round: int, block: int | None) -> Any:
    """The estimate [S, P] of rows x [S * K, P], device by device."""
    transport, state = link.link.transport, link.link.channel.get_state(round)
    settings, impairments = transport.settings, transport.parts.alignment.impairments
    groups, n, prefix = state.h.shape[4], settings.subcarriers, settings.prefix
    offsets, delays = (one.numpy() for one in noise.draw_offsets(impairments, K, round))
    rows, budget = x.view(S, K, -1).numpy(), link.link.budget.budget.numpy()
    saved = {name: value.numpy() for name, value in report.saved_tensors.items()}
    order = np.arange(1, rows.shape[2] + 1)
    kept = twin.laid_out(order, groups, n, block).real.astype(int)
    paths = state.paths_fn and state.paths_fn(-(-rows.shape[2] // block) if block else 1)
    estimates = []
    for s in range(S):
        column = np.repeat(np.arange(saved["p/0"].shape[1]), saved["lengths"])
        y = np.zeros(kept.shape, dtype=complex)
        for k in range(K):
            carriers = twin.laid_out(saved["p/0"][s, column, k] * rows[s, k], groups, n, block)
            peak = np.sqrt(impairments.clip[s].item() * budget[s, k])
            level = np.inf
            if settings.amplifier == "rapp":
                level = np.sqrt(10 ** (settings.backoff_db / 10) * budget[s, k])
            sent = np.array(
                [
                    twin.amplified(one, settings.oversampling, peak, level, settings.smoothness)
                    for one in carriers
                ]
            )
            estimate_paths = [(state.h[s, k, 0, 0, 0].item(), 0.0)]
            if paths is not None:
                tau = paths.delay_s.expand(-1, K, -1, -1)[s, k, 0].numpy() * BANDWIDTH_HZ
                a = paths.a[s, k, 0, 0].numpy() * np.sqrt(state.gain[s, k].item())
                estimate_paths = [(one, at) for one, at in zip(a, tau, strict=True) if one != 0]
            late = (delays[s, k] - delays[s].min()) * n
            y += twin.received(sent, estimate_paths, late, offsets[s, k], prefix)
        flat = twin.sub_carriers(y).ravel()[np.argsort(kept.ravel())[-rows.shape[2] :]]
        estimates.append(flat.real / np.sqrt(saved["eta/0"][s, column]) / K)
    return np.array(estimates)


WIDE = {"name": "trace", "scene": "munich", "snr_db": 200.0, "bandwidth_hz": BANDWIDTH_HZ}
WIDE |= {"antennas": 1}
BENT = {"carrier_offset": 0.1, "timing_offset": 0.4, "clip_db": 3.0}


@pytest.mark.parametrize(
    ("channel", "impairments", "transport"),
    [
        ({"name": "rayleigh", "snr_db": 200.0}, {"timing_offset": 0.5}, {"prefix": 3}),
        (WIDE | {"subcarrier_groups": 8}, {}, {"prefix": 2}),
        (WIDE | {"subcarrier_groups": 4}, BENT, {"prefix": 3, "amplifier": "rapp"}),
        (
            WIDE | {"subcarrier_groups": 1},
            BENT,
            {"prefix": 0, "amplifier": "rapp", "backoff_db": 0.0, "oversampling": 2},
        ),
        (WIDE | {"subcarrier_groups": 7}, BENT, {"prefix": 2, "subcarriers": 7}),
    ],
    ids=["flat, late", "paths", "all", "all, oversampled", "odd"],
)
def test_samples(
    channel: dict[str, Any], impairments: dict[str, Any], transport: dict[str, Any]
) -> None:
    link = rig(
        {"name": "ofdm", "subcarriers": 8} | transport, channel=channel, impairments=impairments
    )
    x = link.draw_symbols(P, 0)
    estimate, report = link.send(x, 1)
    groups = link.link.channel.get_state(1).h.shape[4]
    report.saved_tensors["lengths"] = torch.tensor(
        [P * (f + 1) // groups - P * f // groups for f in range(groups)]
    )
    expected = sum_of_loops(link, x, report, 1, None)
    np.testing.assert_allclose(estimate.numpy(), expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.slow  # Sionna takes seconds to import
def test_sionna() -> None:
    """Two devices over taps of whole samples, two of them beyond the prefix."""
    from sionna.phy.channel import ApplyTimeChannel
    from sionna.phy.ofdm import OFDMDemodulator, OFDMModulator

    n, prefix, symbols, taps = 16, 3, 6, 8
    rng = np.random.default_rng(0)
    sent = rng.standard_normal((2, symbols, n)) + 1j * rng.standard_normal((2, symbols, n))
    delay = np.array([0, 2, 3, 5, 7])
    gain = rng.standard_normal((2, len(delay))) + 1j * rng.standard_normal((2, len(delay)))

    filters = np.zeros((1, 1, 1, 2, 1, symbols * (n + prefix) + taps - 1, taps), complex)
    filters[0, 0, 0, :, 0, :, delay] = gain.T[..., None]
    through = ApplyTimeChannel(symbols * (n + prefix), taps, precision="double", device="cpu")
    modulate = OFDMModulator(prefix, precision="double", device="cpu")
    demodulate = OFDMDemodulator(n, 0, prefix, precision="double", device="cpu")
    theirs = demodulate(
        through(modulate(torch.from_numpy(sent)[None, :, None]), torch.from_numpy(filters))
    )

    half = np.exp(1j * np.pi * delay / n)  # the band's centre does not turn, as it does there
    paths = Paths(
        torch.from_numpy(gain * half)[None, :, None, None],
        torch.from_numpy(delay / 1.0).expand(1, 2, 1, -1),
    )
    state = ChannelState(
        torch.ones(1, 2, 1, 1, 1, dtype=torch.complex128),
        torch.ones(1, 2),
        paths_fn=lambda _: paths,
    )
    rows = torch.arange(2)
    cohort = Cohort.create(torch.zeros_like(rows), rows, torch.ones(2), (2,), 2)
    grid = lay_out([symbols * n], 1, n, prefix, torch.device("cpu"))
    bandwidth = torch.ones(1, dtype=torch.float64)
    arrivals = Arrivals(state.h.flatten(3), state, cohort, grid, bandwidth, None, None)
    chunks = windows(Given(torch.from_numpy(sent)), torch.clone, arrivals, None, cohort, grid)
    ours = to_carriers(torch.cat(list(chunks), 2), n)
    np.testing.assert_allclose(ours[0, 0].numpy(), theirs[0, 0, 0].numpy(), atol=1e-12)


@dataclass
class Given:
    """A group whose sub-carriers [N, M, n] are given."""

    sent: torch.Tensor

    def __iter__(self) -> Iterator[Given]:
        return iter([self])

    def carriers(self, first: int, stop: int, size: int) -> torch.Tensor:
        return self.sent[:, first:stop]
