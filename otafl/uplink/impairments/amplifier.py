"""Bend the samples of a transmitter: an amplifier that saturates (Rapp), and clipped peaks.

References
----------
Rapp 1991, "Effects of HPA-Nonlinearity on a 4-DPSK/OFDM-Signal for a Digital Sound Broadcasting
    System".
"""

from __future__ import annotations

from torch import Tensor


def rapp(samples: Tensor, saturation: Tensor, smoothness: Tensor) -> Tensor:
    """Amplify complex samples with unit gain where they are small.

    |y| = |x| / (1 + (|x| / A)^(2 p))^(1 / (2 p)), phases as they are. All broadcast.

    Parameters
    ----------
    samples : x.
    saturation : A, the largest |y|.
    smoothness : p; the larger, the nearer to clipping at A.
    """
    over = samples.abs() / saturation
    by = over.clamp_min(1.0)  # taken out, so that no power is larger than one
    both = by.pow(-2.0 * smoothness) + (over / by).pow(2.0 * smoothness)
    return samples / (by * both.pow(0.5 / smoothness))


def clip_amplitude(samples: Tensor, peak: Tensor) -> Tensor:
    """Return complex samples whose magnitude is at most `peak`, inf: any; phases as they are."""
    return samples / (samples.abs() / peak).clamp_min(1.0)


def peaks(samples: Tensor) -> Tensor:
    """Return the peak power of each OFDM symbol's samples [..., n].

    Of n sub-carriers that are CN(0, 1), at n samples: P(peak > g) = 1 - (1 - exp(-g))^n.
    """
    return samples.abs().amax(-1).square()
