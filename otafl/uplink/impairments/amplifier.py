"""Non-linear distortion of a transmitter's samples: a saturating amplifier, and clipped peaks.

References
----------
Rapp 1991, "Effects of HPA-Nonlinearity on a 4-DPSK/OFDM-Signal for a Digital Sound Broadcasting
    System".
"""

from __future__ import annotations

from torch import Tensor


def rapp(samples: Tensor, saturation: Tensor, smoothness: Tensor) -> Tensor:
    """Amplify complex samples by the Rapp model, with unit gain for small samples.

    All arguments broadcast.

    Parameters
    ----------
    samples : Tensor, complex
        Samples x.
    saturation : Tensor, float
        Saturation amplitude A, the largest |y|.
    smoothness : Tensor, float
        Smoothness p; at a larger one the amplifier comes nearer to clipping at A.

    Returns
    -------
    Tensor, complex
        Amplified samples y, with the phases of x.

    Notes
    -----
    .. math::

        |y| = |x| / (1 + (|x| / A)^{2 p})^{1 / (2 p)}
    """
    over = samples.abs() / saturation
    by = over.clamp_min(1.0)  # factored out, so that no base of a power is above one
    both = by.pow(-2.0 * smoothness) + (over / by).pow(2.0 * smoothness)
    return samples / (by * both.pow(0.5 / smoothness))


def clip_amplitude(samples: Tensor, peak: Tensor) -> Tensor:
    """Clip complex samples to magnitudes of at most `peak` (inf: no clipping), keeping phases."""
    return samples / (samples.abs() / peak).clamp_min(1.0)


def peaks(samples: Tensor) -> Tensor:
    """Return the peak power of each OFDM symbol's samples [..., n].

    With n sub-carriers that are CN(0, 1), and n samples, P(peak > g) = 1 - (1 - exp(-g))^n.
    """
    return samples.abs().amax(-1).square()
