"""Adam's constants.

References
----------
Kingma, Ba 2015, "Adam: A Method for Stochastic Optimization", Algorithm 1.
"""

from __future__ import annotations

BETAS = (0.9, 0.999)
"""Decays of the first and the second moment."""

EPSILON = 1e-8
"""Number below the quotient of a step; both are also PyTorch's defaults."""
