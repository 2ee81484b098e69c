"""OFDM symbols device by device, path by path and sample by sample, without a Fourier transform."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def laid_out(values: np.ndarray, groups: int, carriers: int, block: int | None) -> np.ndarray:
    """Values [L] in the order of channel uses on sub-carriers [M, n], zeros where none are."""
    length, width = block or len(values), carriers // groups
    rows: list[np.ndarray] = []
    for start in range(0, len(values), length):
        here = values[start : start + length]
        cells = [
            here[len(here) * f // groups : len(here) * (f + 1) // groups] for f in range(groups)
        ]
        symbols = max(-(-len(cell) // width) for cell in cells)
        grid = np.zeros((symbols, carriers), dtype=complex)
        for f, cell in enumerate(cells):
            for use, value in enumerate(cell):
                grid[use // width, f * width + use % width] = value
        rows.extend(grid)
    return np.array(rows)


def waveform(carriers: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The symbol of sub-carriers [n] at times t, in samples."""
    n = len(carriers)
    bins = np.arange(n) - n // 2
    return np.exp(2j * np.pi * np.outer(t, bins) / n) @ carriers / np.sqrt(n)


def amplified(
    carriers: np.ndarray, oversampling: int, peak: float, saturation: float, smoothness: float
) -> np.ndarray:
    """Sub-carriers [n] of a symbol whose samples were clipped and sent through a Rapp amplifier."""
    n = len(carriers)
    t = np.arange(n * oversampling) / oversampling
    x = waveform(carriers, t)
    x = np.where(np.abs(x) > peak, peak * np.exp(1j * np.angle(x)), x)
    x = x / (1 + (np.abs(x) / saturation) ** (2 * smoothness)) ** (0.5 / smoothness)
    bins = np.arange(n) - n // 2
    return np.exp(-2j * np.pi * np.outer(bins, t) / n) @ x * np.sqrt(n) / len(t)


def received(
    sent: np.ndarray,
    paths: Sequence[tuple[complex, float]],
    late: float,
    offset: float,
    prefix: int,
) -> np.ndarray:
    """Samples [M, n] in the windows of the receiver of one device's symbols [M, n], each path of
    which has a gain and a delay in samples."""
    symbols, n = sent.shape
    centre = 0.0 if n % 2 else 0.5  # the band's centre lies between two sub-carriers
    y = np.zeros((symbols, n), dtype=complex)
    for gain, delay in paths:
        delay = delay + late
        turn = gain * np.exp(-2j * np.pi * centre * delay / n)
        for m in range(symbols):
            for j in range(n):
                t, of = j - delay, m
                while t < -prefix:
                    t, of = t + n + prefix, of - 1
                if of >= 0:
                    y[m, j] += turn * waveform(sent[of], np.array([t]))[0]
    time = np.arange(symbols)[:, None] * (n + prefix) + np.arange(n)
    return y * np.exp(2j * np.pi * offset * time / n)


def sub_carriers(samples: np.ndarray) -> np.ndarray:
    """Sub-carriers [M, n] of samples [M, n]."""
    n = samples.shape[1]
    bins = np.arange(n) - n // 2
    return samples @ np.exp(-2j * np.pi * np.outer(np.arange(n), bins) / n) / np.sqrt(n)
