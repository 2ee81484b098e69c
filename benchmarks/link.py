"""Speed of the physical layer. Prints a Markdown page.

python benchmarks/link.py > benchmarks/link.md
"""

from __future__ import annotations

from typing import Any

import torch
from page import name_machine
from timing import seconds, side_by_side

from otafl.core.contracts import Cohort, Group
from otafl.core.rng import Streams
from otafl.scenario import load_scenario
from otafl.uplink import build
from otafl.uplink.base import deliver


class Uplink:
    """Calls deliver one payload [K, P] over the scenario's uplink, a round after the other."""

    def __init__(self, devices: int, reals: int, trials: int = 1, **sections: Any) -> None:
        scenario = load_scenario({"name": "link", "devices": {"count": devices}, **sections})
        streams = Streams([0] * trials, list(range(trials)))
        self.link = build([scenario] * trials, devices, streams)
        rows = trials * devices
        trial = torch.arange(trials).repeat_interleave(devices)
        device = torch.arange(devices).repeat(trials)
        weight = torch.full((rows,), 1.0 / devices)
        self.cohort = Cohort.create(trial, device, weight, (devices,) * trials, devices)
        self.x = torch.randn(rows, reals, generator=torch.Generator().manual_seed(0))
        self.round = 0

    @torch.inference_mode()
    def __call__(self) -> None:
        state = self.link.channel.get_state(self.round)
        deliver(self.link.transport, (Group({"x": self.x}),), self.cohort, state, self.round)
        self.round += 1


def bandwidth() -> None:
    """1,000 devices x 1e6 parameters, flat fading, beside a copy of the payload."""
    uplink = Uplink(1000, 1_000_000, channel={"name": "rayleigh", "snr_db": 20}, power="gbma")
    target = torch.empty_like(uplink.x)
    gigabytes = uplink.x.nbytes / 1e9
    pair = side_by_side(lambda: target.copy_(uplink.x), uplink, pairs=5)
    title = "1,000 devices x 1e6, Rayleigh, GBMA"
    row(title, "a copy (read and write)", f"{2 * gigabytes / pair.fast_s:.1f} GB/s")
    row(title, "uplink (powers and sum: two reads)", f"{2 * gigabytes / pair.slow_s:.1f} GB/s")
    row(title, "uplink / copy, time", f"{pair.ratio:.2f} ({pair.lowest:.2f} to {pair.highest:.2f})")


def antennas() -> None:
    """Rounds of 100 devices and 64 antennas, payload of 7,850, beside one antenna."""
    one = Uplink(100, 7850, channel="rayleigh", power="ci")
    many = {"name": "rayleigh", "antennas": 64}
    for receiver in ("mrc", "eigen", "uniform_forcing"):
        uplink = Uplink(100, 7850, channel=many, receiver=receiver, power="ci")
        pair = side_by_side(one, uplink, pairs=21)
        title = "100 devices, 64 antennas, 7,850 reals"
        row(title, f"{receiver}, a round", f"{pair.slow_s * 1e3:.1f} ms")
        row(title, f"{receiver} / one antenna", f"{pair.ratio:.1f}")


def ofdm() -> None:
    """TDL draws: 100 devices, 64 rounds, 64 sub-carrier groups."""
    channel = {"name": "tdl-a", "subcarrier_groups": 64}
    uplink = Uplink(100, 10, channel=channel, power="ci")
    state = uplink.link.channel.get_state
    state(0)
    blocks = [seconds(lambda b=b: [state(64 * b + t) for t in range(64)]) for b in range(1, 4)]
    title = "TDL-A, 100 devices, 64 rounds, 64 sub-carrier groups"
    row(title, "drawn in", f"{sorted(blocks)[1]:.2f} s")


def impairments() -> None:
    """What bends a signal, beside the plain reduction: 100 devices x 79,510."""
    plain = Uplink(100, 79_510, channel="rayleigh", power="gbma")
    for name, settings in {
        "carrier offset": {"carrier_offset": 1e-4},
        "timing": {"timing_offset": 0.3},
        "clipping and converter": {"clip_db": 6.0, "adc_bits": 8},
    }.items():
        bent = Uplink(100, 79_510, channel="rayleigh", power="gbma", impairments=settings)
        pair = side_by_side(plain, bent)
        title = "100 devices x 79,510, Rayleigh, GBMA"
        row(title, f"{name} / without", f"{pair.ratio:.1f} ({pair.slow_s * 1e3:.0f} ms)")


def measure_noncoherent() -> None:
    """Votes and energies beside the coherent sum of the same payload, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for devices, reals in ((10, 7850), (10, 79_510), (100, 7850), (100, 79_510)):
        plain = Uplink(devices, reals, channel="rayleigh", power="gbma")
        for transport in ("fsk_majority_vote", "reed"):
            pair = side_by_side(
                plain, Uplink(devices, reals, channel="rayleigh", transport=transport)
            )
            title = f"{devices} devices x {reals:,}, one thread"
            ratio = f"{pair.ratio:.1f} ({pair.lowest:.1f} to {pair.highest:.1f})"
            row(title, f"{transport} / coherent sum", f"{ratio}, {pair.slow_s * 1e3:.1f} ms")
    torch.set_num_threads(threads)


def policies() -> None:
    """A policy's scalars for 100 trials of 100 devices, in a round of a small payload."""
    from otafl.core import registry

    title = "100 x 100 devices"
    plain = Uplink(100, 100, trials=100, channel="rayleigh", power="ci")
    row(title, "ci, a round", f"{_median(plain) * 1e3:.1f} ms")
    for name in sorted({*registry.list_names("power")} - {"ci"}):
        uplink = Uplink(100, 100, trials=100, channel="rayleigh", power=name)
        pair = side_by_side(plain, uplink, pairs=11)
        row(title, f"{name} / ci", f"{pair.ratio:.2f}")


def _median(call: Any) -> float:
    call()
    return sorted(seconds(call) for _ in range(11))[5]


def row(title: str, what: str, value: str) -> None:
    print(f"| {title} | {what} | {value} |", flush=True)


def main() -> None:
    print("# The physical layer's speed\n")
    print("Made by `python benchmarks/link.py > benchmarks/link.md`; things to compare are")
    print("run in turn, A B A B, and ratios are medians of the pairs.\n")
    print(f"{name_machine()}, {torch.get_num_threads()} threads\n")
    print("| case | figure | measured |\n|---|---|---|")
    bandwidth()
    antennas()
    ofdm()
    impairments()
    measure_noncoherent()
    policies()


if __name__ == "__main__":
    main()
