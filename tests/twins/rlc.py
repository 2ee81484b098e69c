"""The distortion of FedRLR's random linear coding, `otafl.factorised.rlc`, in closed form: of equal
models, and what noise adds."""

from __future__ import annotations

from collections.abc import Sequence


def equal_models_distortion(s: Sequence[float], devices: int, fourth: float = 1.0) -> float:
    """Return `rlc.distortion` over |Theta|^2 for K devices of equal weight with the same Theta, of
    singular values s. It does not vanish with K:

        ideal gains  [(sum s)^2 + (1 - 2/K) sum s^2] / (R sum s^2)
        GBMA         [(1 + 1/K) ((sum s)^2 - sum s^2) + (2 - 2/K + R/K) sum s^2] / (R sum s^2)
    """
    rank, nuclear, square = len(s), sum(s), sum(x * x for x in s)
    own = (fourth - 1.0) * square + fourth * (nuclear**2 - square) / rank
    pairs = (nuclear**2 + square) / rank
    return (own / devices + (1.0 - 1.0 / devices) * pairs) / square


def noise_distortion(nuclear: float, rank: int, rows: int, columns: int, noise: float) -> float:
    """Return what noise adds to `rlc.distortion` (not relative), with gains of E a^2 = 1: v N
    (M + N) + M N R v^2 for M = rows, N = columns and nuclear = sum_k w_k times the sum of the
    singular values of Theta_k.

    noise: variance v of each entry of X_U and X_V. For K equal weights it is sigma_z^2 / (2 gamma
    K), where a device's signal is at power gamma without its sqrt(w_k) = K^(-1/2).
    """
    return noise * nuclear * (rows + columns) + rows * columns * rank * noise**2
