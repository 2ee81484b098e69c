"""Take the value of a variable at the end of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from otafl.core.errors import UserError
from otafl.core.suggestions import format_count, make_unknown_name_error
from otafl.results.variables import GUESSES, SUMS, find_guess

if TYPE_CHECKING:
    import xarray as xr


DIVERGED = "diverged_round"


def find_end_rounds(dataset: xr.Dataset) -> xr.DataArray:
    """Return the last record of each point, or that at which a trial reached its target or ended.

    Dims are the sweep's axes, with trial where trials can end early.
    """
    ends = dataset["final_round"]
    for early in ("end_round", "stop_round"):
        if early in dataset:
            ends = dataset[early].fillna(ends)
    return ends


def select_at_end(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Return a variable of a combined dataset at `find_end_rounds`, without `round`."""
    values = dataset[name]
    if "round" not in values.dims:
        return values
    values = values.where(values["round"] == find_end_rounds(dataset)).max("round", keep_attrs=True)
    return values.drop_vars("final_round", errors="ignore")


def select_final(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Return `select_at_end`, NaN for a trial that diverged."""
    values = select_at_end(dataset, name)
    if DIVERGED not in dataset or "round" not in dataset[name].dims:
        return values
    return values.where(dataset[DIVERGED].isnull()).drop_vars("final_round", errors="ignore")


def count_diverged(
    dataset: xr.Dataset, names: Iterable[str] | None = None, to_last_round: bool = False
) -> xr.Dataset:
    """Count trials that diverged as guesses, which means over trials then include.

    From the round of divergence to the point's last, an accuracy, mean squared error, r2 or
    perplexity is that of a guess, or of the trial's untrained model where the result has no guess;
    any other variable is NaN. An untrained model is no guess: a pretrained one knows more, one
    pretrained on other classes less. The other trials of the stack do not matter. A stack of only
    diverged trials ends with the record in which they diverged, another one later.

    Parameters
    ----------
    names : of variables; None: all that have rounds.
    to_last_round : whether guesses continue to the last round of the dataset, also where all trials
        of a point diverged and its last round is earlier.
    """
    if "round" not in dataset.dims or not describe_diverged(dataset):
        return dataset
    rounds = dataset["round"]
    lost = rounds >= dataset[DIVERGED]
    if not to_last_round:
        lost &= rounds <= dataset["final_round"]
    out = {}
    for name in dataset.data_vars if names is None else names:
        values = dataset[name]
        if "round" in values.dims and "trial" in values.dims:
            guess = _get_guess(dataset, str(name)).where(values.notnull().any("round"))
            guess = guess.astype(values.dtype)
            out[name] = values.where(~lost, guess).transpose(*values.dims, ...).variable
    return dataset.assign(out)


def describe_diverged(dataset: xr.Dataset) -> str:
    """Describe how many trials diverged and how they count; empty if none did."""
    lost = int(dataset[DIVERGED].notnull().sum()) if DIVERGED in dataset else 0
    if not lost:
        return ""
    first, last = (f"{end:.0f}" for end in (dataset[DIVERGED].min(), dataset[DIVERGED].max()))
    when = f"round {first}" if first == last else f"rounds {first} to {last}"
    said = f"{lost} of {format_count(dataset[DIVERGED].size, 'trial')} diverged in {when}"
    if any(name in dataset for name in GUESSES):
        return f"{said}: metrics count as a guess, all else is left out"
    if 0 in dataset["round"].values:
        return f"{said}: metrics count as the untrained model's, all else is left out"
    return f"{said} and {'is' if lost == 1 else 'are'} left out of the means"


def _get_guess(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Return the value of a guess by trial, NaN for a variable that has none."""
    guess = find_guess(name)
    if guess in dataset:
        return dataset[guess]
    if guess == "r2_guess":
        return dataset[DIVERGED].where(False, 0.0)
    if guess is not None and 0 in dataset["round"].values:
        return dataset[name].sel(round=0, drop=True)
    return dataset[DIVERGED].where(False)


SUMMED_DIMS = {"device": "devices", "cause": "causes"}


def sum_over_devices(values: xr.DataArray, kept_dims: Collection[str] = ()) -> xr.DataArray:
    """Return a quantity of `SUMS` summed over the devices and causes that are not drawn.

    Other quantities are returned unchanged. `long_name` names the sum.
    """
    over = [dim for dim in SUMMED_DIMS if dim in values.dims and dim not in kept_dims]
    if values.name not in SUMS or not over:
        return values
    said = f"{SUMS[str(values.name)]}, sum over {' and '.join(SUMMED_DIMS[dim] for dim in over)}"
    total = values.sum(over, min_count=1, keep_attrs=True)
    return total.assign_attrs(long_name=said)


def select_end_total(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Return a variable at the end of each trial, with dims (sweep axes, trial).

    Joules are added up over devices and causes, other values of devices are averaged. Trials that
    diverged count as `count_diverged` says.
    Raises UserError for a variable that is not there, or has other dims.
    """
    if name not in dataset.data_vars:
        raise make_unknown_name_error(
            str(name), "a variable of this result", name, dataset.data_vars
        )
    values = sum_over_devices(select_at_end(count_diverged(dataset, [name]), name).rename(name))
    values = values.mean([dim for dim in SUMMED_DIMS if dim in values.dims], keep_attrs=True)
    axes = dataset["final_round"].dims
    more = [str(dim) for dim in values.dims if dim not in (*axes, "trial")]
    if more or "trial" not in values.dims:
        lacks = f"also depends on {', '.join(more)}" if more else "has no trials"
        raise UserError(f"{name}: {lacks}; give a variable of whole trials, like test_accuracy")
    return values.transpose(*axes, "trial")
