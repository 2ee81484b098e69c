"""Name the kinds of figures once, for the command line, the report and the library.

A kind is the module of this package that has its name; the module ends with its `RECIPE`. A new
kind is such a module, a member of `Kind`, and a line in `plots._HOMES`. None is imported before a
figure of its kind is made, so that the command line can list kinds at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otafl.core.errors import UserError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


def open_result(path: Path, trust: bool) -> xr.Dataset:
    """Open a result, in which nothing is code."""
    from otafl.results.files import open_results

    return open_results(path)


@dataclass(frozen=True)
class FigureRecipe:
    """Steps from a result to a figure of one kind.

    Parameters
    ----------
    data_fn : from what `open_fn` gives to what is drawn. Its keyword arguments are `flags` and
        `sel`. What it returns has the attributes kind, note, x, y or z (the names that were asked
        for), x_label, y_label, hue and facet ("" for none).
    draw_fn : from what is drawn, and a title, to the figure.
    columns : variable of what is drawn -> its column in a table. "{x}" is what was asked for.
    file : how the name of the figure's file ends, likewise.
    flags : those of `otafl plot` that the kind takes.
    open_fn : opens the file that is drawn; whether code that it names may be run.
    """

    data_fn: Callable[..., xr.Dataset]
    draw_fn: Callable[[xr.Dataset, str], Figure]
    columns: Mapping[str, str]
    file: str
    flags: Sequence[str]
    open_fn: Callable[[Path, bool], Any] = open_result


class Spread(StrEnum):
    """What bands and bars of a figure show."""

    deviation = "deviation"
    error = "error"
    interval = "interval"


class Kind(StrEnum):
    """Name a kind of figures."""

    curves = "curves"
    heatmap = "heatmap"
    pareto = "pareto"
    cdf = "cdf"
    partition_ = "partition"  # texts have a method `partition`
    map = "map"

    @property
    def recipe(self) -> FigureRecipe:
        """Import the module of this kind."""
        recipe: FigureRecipe = import_module(f"otafl.plots.{self}").RECIPE
        return recipe

    def compute_data(
        self, ds: Any, sel: Mapping[str, str] | None = None, **flags: str | None
    ) -> xr.Dataset:
        """Compute what is drawn.

        Parameters
        ----------
        ds : a result; of partitions and maps a scenario, as the kind's recipe opens it.
        sel : dim -> the value of it that is drawn.
        flags : x, y, z, hue and facet; None: what is drawn if nothing is said.

        Raises
        ------
        UserError : for a flag that the kind does not take, and for what cannot be drawn.
        """
        given = {flag: value for flag, value in flags.items() if value is not None}
        taken = self.recipe.flags
        for flag, value in given.items():
            if flag not in taken:
                known = ", ".join(f"--{one}" for one in taken)
                raise UserError(f"--{flag} {value}: --kind {self} takes {known} and --sel")
        return self.recipe.data_fn(ds, **given, sel=sel)
