"""Compares power-control policies over SNR and device count.

Reads a result of a scenario that sweeps power, device_count and snr_db, and prints the mean and
standard deviation over trials of the final test accuracy. Without RESULT it is what
`otafl sweep scenarios/fashion_mnist_gbma_ci.yaml` writes.

    python scripts/compare_power.py results/fashion_mnist_gbma_ci --figure power.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import xarray as xr

from otafl import UserError, open_results
from otafl.plots import plot
from otafl.results import final
from otafl.summary import spread

DIMS = ("power", "device_count", "snr_db")


def accuracy_table(accuracy: xr.DataArray) -> list[list[str]]:
    """Rows of text from accuracy [power, device_count, snr_db, trial]; the first is the header."""
    rows = [["power", "devices", *(f"{snr:g} dB" for snr in accuracy["snr_db"].values)]]
    for power, of_power in zip(accuracy["power"].values, accuracy.values, strict=True):
        for count, of_count in zip(accuracy["device_count"].values, of_power, strict=True):
            rows.append([str(power), str(count), *(spread(trials) for trials in of_count)])
    return rows


def compare(result: Path, variable: str, figure: Path) -> None:
    """Prints the table and draws the figure."""
    ds = open_results(result)
    missing = [dim for dim in DIMS if dim not in ds.dims]
    if variable not in ds or missing:
        lacks = ", ".join(missing) or variable
        raise UserError(f"{result}: has no {lacks}; a sweep over {', '.join(DIMS)} is needed")
    rows = accuracy_table(final(ds, variable).transpose(*DIMS, "trial"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    trials = ds.sizes["trial"]
    print(f"{variable} at the end, mean ± standard deviation over {trials} trials")
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    if not ds.attrs["complete"]:
        print("the sweep is unfinished: - marks what has not been run")
    plot(ds, variable, "snr_db", hue="power", facet="device_count", path=figure)
    print(f"figure: {figure}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = Path("results/fashion_mnist_gbma_ci")
    parser.add_argument("result", nargs="?", type=Path, default=default, help="file or folder")
    parser.add_argument("--variable", default="test_accuracy", help="result variable to compare")
    parser.add_argument("--figure", type=Path, default=Path("compare_power.png"))
    options = parser.parse_args()
    try:
        compare(options.result, options.variable, options.figure)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
