"""Reduction of a long sweep to fewer points."""

from __future__ import annotations

import numpy as np
import xarray as xr

from otafl.analysis.points import list_axes
from otafl.results.coordinates import get_long_name


def thin_points(ds: xr.Dataset, max_points: int) -> tuple[xr.Dataset, list[str]]:
    """Halve the longest axes of a sweep until it has at most so many points.

    Parameters
    ----------
    ds : result.
    max_points : number of points that are kept at most.

    Returns
    -------
    tuple
        The result with the remaining values, which are evenly spaced and include the first and the
        last, and a sentence for each axis that has fewer.
    """
    whole = {dim: ds.sizes[dim] for dim in list_axes(ds)}
    kept = dict(whole)
    while int(np.prod(list(kept.values()))) > max(1, max_points):
        longest = max(kept, key=lambda dim: kept[dim])
        kept[longest] = max(1, kept[longest] // 2)
    fewer = {dim: size for dim, size in kept.items() if size < whole[dim]}
    places = {dim: np.linspace(0, whole[dim] - 1, size).astype(int) for dim, size in fewer.items()}
    said = [
        f"{get_long_name(ds, dim)}: {size} of {whole[dim]} values." for dim, size in fewer.items()
    ]
    return ds.isel(places), said
