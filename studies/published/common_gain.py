"""What zero bias costs: error of the aggregate, mean over rounds, and accuracy at the end, with the
largest common mean gain, the one of least error, and bias. A diverged trial counts as a guess.

    otafl sweep studies/published/common_gain.yaml
    python -m studies.published.common_gain [results]
"""

from __future__ import annotations

import ast

from otafl.analysis.summary import format_mean_std
from studies.common.tables import (
    command,
    format_points,
    make_study_parser,
    open_result,
    print_head,
    print_row,
    read_end,
)

PLANS = ("largest common gain", "best common gain", "plan with bias")
"""The scenario's pre-scalers, in its order."""


def main() -> None:
    result = open_result(make_study_parser(__doc__).parse_args().results, "common_gain")
    errors = result["aggregation_nmse"].mean(("trial", "round"))
    accuracy = read_end(result, "test_accuracy")
    print_head(
        "What zero bias costs: error; accuracy",
        *("spread of received powers, SNR of the nearest", *PLANS, "points: best above largest"),
    )
    for label in result["device_budget_db"].values:
        budgets = ast.literal_eval(str(label))
        for snr in result["snr_db"].values:
            at = {"device_budget_db": label, "snr_db": snr}
            own = [accuracy.sel(at).isel(power=i) for i in range(len(PLANS))]
            cells = [
                f"{float(error):.2g}; {format_mean_std(values.values)}"
                for error, values in zip(errors.sel(at), own, strict=True)
            ]
            spread = max(budgets) - min(budgets)
            print_row(f"{spread} dB, {snr} dB", *cells, format_points(own[1], own[0]))


if __name__ == "__main__":
    command(main)
