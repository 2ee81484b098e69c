"""Latency of one sum in phase against OFDMA: seconds on air by the number of devices, their ratio,
and the exponents with which they grow (95 % intervals over trials).

    otafl sweep studies/theory/broadband_latency.yaml
    python -m studies.theory.broadband_latency [results]
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from otafl.analysis.summary import format_mean_std
from otafl.results.end_values import select_at_end
from studies.common.looks import compute_half_interval
from studies.common.tables import command, make_study_parser, open_result, print_head, print_row


def fit_exponent(seconds: xr.DataArray) -> str:
    """Write the slope of the logarithms of values [device_count, trial], and its interval."""
    logs = np.log(seconds.transpose("device_count", "trial").values)
    slopes = np.polyfit(np.log(seconds["device_count"].values), logs, 1)[0]
    slope = xr.DataArray(slopes, dims="trial")
    mean, half = float(slope.mean()), float(compute_half_interval(slope))
    return f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]" if half > 1e-9 else f"{mean:.2f}"


def main() -> None:
    result = open_result(make_study_parser(__doc__).parse_args().results, "broadband_latency")
    one_sum, ofdma = (select_at_end(result, "airtime_s").isel(zip=i) for i in (0, 1))
    ratio = ofdma / one_sum
    print_head(
        f"Milliseconds on air of {int(result['round'].max())} rounds",
        *("devices", "one sum", "OFDMA", "OFDMA over one sum"),
    )
    for count in result["device_count"].values:
        rows = (1000 * one_sum, 1000 * ofdma, ratio)
        print_row(count, *(format_mean_std(one.sel(device_count=count).values) for one in rows))
    print_row("exponent", *map(fit_exponent, (one_sum, ofdma, ratio)))


if __name__ == "__main__":
    command(main)
