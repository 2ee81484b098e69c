"""Laws of a reconfigurable intelligent surface.

The channel is h = sqrt(1 - b) d + sqrt(r) times the sum of the paths of M elements, each of which
is the product of two Rayleigh fading paths.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from scipy import integrate

from otafl.core.units import db_to_linear
from otafl.laws.bench import Bench
from otafl.laws.channels import MOVING, jakes
from otafl.laws.checks import Check, check_at_least, check_exact, check_mean, state_law

WU = "Wu, Zhang 2019"
BADIU = "Badiu, Coon 2020"

ELEMENTS = 16
SIZES = (4, ELEMENTS, 64)
BLOCKED = 0.36
REFLECTED_DB = -10.0

DIRECT, R = math.sqrt(1.0 - BLOCKED), db_to_linear(REFLECTED_DB)
AMPLITUDE = math.sqrt(math.pi) / 2.0
"""Mean amplitude E|d| of a path."""

ROUNDS = 8
COUNTS = (1, 4)
APART = (("at rest", ELEMENTS), ("at rest", 1), ("moving", 1))
"""Motion of the devices, and number of elements."""
RULES = ("align_weakest", "align_sum")


@functools.lru_cache(maxsize=16)
def _paths(
    bench: Bench,
    rule: str,
    devices: int,
    antennas: int = 1,
    neighbours: float = 0.0,
    bits: int = 0,
    elements: int = ELEMENTS,
    moving: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw h with a surface and d without one, [R, S, K, A] each.

    Trials are independent. The path from the surface to the server is equal in all rounds of a
    trial. `bits` is the number of bits of the known phases, which are exact if it is 0.
    """
    surface = {"elements": elements, "reflected_db": REFLECTED_DB, "blocked": BLOCKED, "rule": rule}
    fading = {"name": "rayleigh", "antennas": antennas, "antenna_correlation": neighbours}
    fading |= MOVING if moving else {}
    csi = {"name": "phase_feedback", "bits": bits} if bits else "perfect"
    point = {"csi": csi, "power": "full"}
    with_surface, without = (
        bench.build_rig(devices, bench.scale_size(256), point | {"channel": fading | {"ris": ris}})
        for ris in (surface, None)
    )
    return with_surface.draw_fading(ROUNDS)[..., 0, 0], without.draw_fading(ROUNDS)[..., 0, 0]


@state_law("surface random: mean power", f"{WU}; E|h|^2 = 1 - b + M r", "A={}", (1, 3))
def _random(bench: Bench, antennas: int) -> Iterator[Check]:
    h, _ = _paths(bench, "random", 4, antennas)
    yield check_mean(1.0 - BLOCKED + ELEMENTS * R, (np.abs(h) ** 2).mean((0, 2, 3)))


@state_law("surface random: no phase of its own", "E Re(h d^*) = sqrt(1 - b)")
def _check_separation(bench: Bench) -> Iterator[Check]:
    """Compare the mean product with the direct path, of which the reflected one is independent."""
    h, d = _paths(bench, "random", 4)
    yield check_mean(DIRECT, (h * d.conj()).real.mean((0, 2, 3)))


@state_law(
    "surface random: power apart",
    "E |d|^2 |h - sqrt(1 - b) d|^2 = M r",
    "{0[0]}, M={0[1]}",
    APART,
)
def _power_apart(bench: Bench, case: tuple[str, int]) -> Iterator[Check]:
    """Compare the mean product of the powers of the direct and the reflected path."""
    motion, elements = case
    h, d = _paths(bench, "random", 4, elements=elements, moving=motion == "moving")
    product = np.abs(d) ** 2 * np.abs(h - DIRECT * d) ** 2
    yield check_mean(elements * R, product.mean((0, 2, 3)))


@state_law("surface align_weakest: power of the others", "M r of random phases")
def _check_others(bench: Bench) -> Iterator[Check]:
    """Compare the reflected power of the devices to which the surface is not aligned.

    The sum of channels is larger with a surface that is aligned to it.
    """
    h, d = _paths(bench, "align_weakest", 4)
    weakest = np.arange(4) == np.abs(d).argmin(2)  # [R, S, K]
    power = (np.abs(h - DIRECT * d) ** 2)[..., 0] * ~weakest
    yield check_mean(ELEMENTS * R, power.sum((0, 2)) / (3.0 * ROUNDS))
    best = np.abs(_paths(bench, "align_sum", 4)[0].sum(2))
    for rule in ("random", "align_weakest"):
        other = np.abs(_paths(bench, rule, 4)[0].sum(2))
        yield check_at_least(1.0, float((best / other).min()), f"sum over that of {rule}")


@state_law("surface random: elements apart", "a correlation of antennas is not one of elements")
def _elements(bench: Bench) -> Iterator[Check]:
    """Compare h at one antenna with that of correlated antennas, which has no effect on it."""
    h, _ = _paths(bench, "random", 4)
    other, _ = _paths(bench, "random", 4, neighbours=0.9)
    yield check_exact(0.0, float(np.abs(h - other).max()), 1e-12)


@state_law("surface align_weakest: phase", f"{WU}, in phase with the direct path", "K={}", COUNTS)
def _phase(bench: Bench, devices: int) -> Iterator[Check]:
    """Compare the phase of the device with the weakest direct path with that of this path."""
    h, d = _paths(bench, "align_weakest", devices)
    weakest = np.abs(d).argmin(2)[:, :, None]
    turn = np.take_along_axis(h * d.conj(), weakest, 2)
    yield check_exact(0.0, float(np.abs(np.angle(turn)).max()), 1e-9)


@state_law(
    "surface align_sum: phase", f"{WU}, in phase with the sum of direct paths", "K={}", COUNTS
)
def _sum_phase(bench: Bench, devices: int) -> Iterator[Check]:
    h, d = _paths(bench, "align_sum", devices)
    yield check_exact(0.0, float(np.abs(np.angle(h.sum(2) * d.sum(2).conj())).max()), 1e-9)


@state_law(
    "surface aligned: amplitude", f"{WU}; M pi/4", "{0[0]}, M={0[1]}", [*product(RULES, SIZES)]
)
def _amplitude(bench: Bench, case: tuple[str, int]) -> Iterator[Check]:
    """Compare E|h| with sqrt(1 - b) sqrt(pi)/2 + sqrt(r) M pi/4.

    For the sum of K devices it is sqrt(K) times as much.
    """
    rule, elements = case
    devices = 4 if rule == "align_sum" else 1
    h, _ = _paths(bench, rule, devices, elements=elements)
    aimed = DIRECT * AMPLITUDE + math.sqrt(R) * elements * AMPLITUDE**2
    yield check_mean(math.sqrt(devices) * aimed, np.abs(h.sum(2)).mean((0, 2)))


@state_law("surface align_weakest: phase errors", f"{BADIU}; (sin(x)/x)^2", "{} bits", (1, 3))
def _phase_errors(bench: Bench, bits: int) -> Iterator[Check]:
    """Compare the amplitude along the direct path if phases are known to some bits.

    The phases of direct path and cascade each have an error that is uniform within x = pi / 2^bits.
    """
    h, d = _paths(bench, "align_weakest", 1, bits=bits)
    x = math.pi / 2**bits
    reflected = math.sqrt(R) * ELEMENTS * AMPLITUDE**2 * (math.sin(x) / x) ** 2
    along = (h * d.conj()).real / np.abs(d)
    yield check_mean(DIRECT * AMPLITUDE + reflected, along.mean((0, 2, 3)))


@state_law("surface align_weakest: power grows as M^2", f"{WU}, Proposition 2", "M={}", SIZES)
def _power(bench: Bench, elements: int) -> Iterator[Check]:
    """Compare E|h|^2 with 1 - b + r [M + M (M - 1) (pi/4)^2] and the product of both paths."""
    h, _ = _paths(bench, "align_weakest", 1, elements=elements)
    surface = R * (elements + elements * (elements - 1) * AMPLITUDE**4)
    both = 2.0 * DIRECT * AMPLITUDE * math.sqrt(R) * elements * AMPLITUDE**2
    yield check_mean(1.0 - BLOCKED + surface + both, (np.abs(h) ** 2).mean((0, 2, 3)))


SNR_DB = 20.0
NOISY = (("error", 0.02), ("pilots", 0.2))
"""Channel state information, and variance of the errors of the estimated cascades."""


def _align_by(bench: Bench, csi: dict[str, Any], **fading: Any) -> np.ndarray:
    """Return |h|^2 [S] of a device without a direct path, whose surface is set by estimates."""
    surface = {"elements": 2 * ELEMENTS, "reflected_db": REFLECTED_DB, "blocked": 1.0}
    channel = {"name": "rayleigh", "snr_db": SNR_DB, "ris": surface} | fading
    point = {"channel": channel, "csi": csi, "power": "full"}
    rig = bench.build_rig(1, bench.scale_size(1000), point)
    return np.abs(rig.link.channel.get_state(3).h.cpu().numpy().ravel()) ** 2


def _compute_aligned_power(factor: float) -> float:
    """Compute E|h|^2 if E v exp(-j arg v_hat) is `factor` times the mean amplitude of v."""
    elements = 2 * ELEMENTS
    return R * (elements + elements * (elements - 1) * (AMPLITUDE**2 * factor) ** 2)


@state_law(
    "surface align_weakest: estimates of rounds ago", f"{BADIU}; Jakes, J0", "{} rounds", (1, 3)
)
def _rounds_ago(bench: Bench, rounds: int) -> Iterator[Check]:
    """Compare E|h|^2 with that of paths and estimates with the correlation J0.

    A device has 32 angles of its own, whose correlation differs from J0 by less than 1e-3.
    """
    power = _align_by(bench, {"name": "delay", "rounds": rounds}, **MOVING)
    yield check_mean(_compute_aligned_power(jakes(rounds)), power, bias=1e-3 * power.mean())


@state_law("surface align_weakest: noisy estimates", BADIU, "{0[0]}, v={0[1]:g}", NOISY)
def _noisy(bench: Bench, case: tuple[str, float]) -> Iterator[Check]:
    """Compare E|h|^2 if the cascades v of the elements are known with errors.

    Given the path g to the server, v is normal with the variance s = r |g|^2, so that E v exp(-j
    arg v_hat) = sqrt(pi s)/2 sqrt(s / (s + variance)), in the mean over |g|^2 ~ Exp(1).
    """
    name, variance = case
    pilots = {"name": name, "power_db": -10.0 * math.log10(variance) - SNR_DB}
    csi = {"name": name, "variance": variance} if name == "error" else pilots
    mean, _ = integrate.quad(
        lambda g: math.exp(-g) * g * R / math.sqrt(g * R + variance), 0.0, np.inf
    )
    factor = AMPLITUDE * mean / (math.sqrt(R) * AMPLITUDE**2)
    yield check_mean(_compute_aligned_power(factor), _align_by(bench, csi))


BY_ESTIMATES = {"align_weakest: estimates of rounds ago", "align_weakest: noisy estimates"}
ALIGNED = BY_ESTIMATES | {
    "align_weakest: phase errors",
    "align_weakest: power grows as M^2",
    "align_weakest: power of the others",
    "aligned: amplitude",
}
"""Laws of the strength of aligned paths."""
