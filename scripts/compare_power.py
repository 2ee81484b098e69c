"""Compares the values of one axis, as power policies, at every point of the others: a table, a
figure, and paired tests against one of them. Without RESULT it is what
`otafl sweep scenarios/fashion_mnist_gbma_ci.yaml` writes.

Trials share data splits, fading and noise, so the differences are taken trial by trial: mean with
its confidence interval, p of the paired t-test corrected by Holm over all rows, and the unpaired
trials that would tell as much as one pair (below 1 where the two do not go together).

    python scripts/compare_power.py results/quickstart.nc --baseline gbma --figure power.png
"""

from __future__ import annotations

from pathlib import Path

from tables import command, draw_curves, make_parser, open_result_at, print_head, print_row

from otafl.analysis.paired import MIN_PAIRS, compare_pairs
from otafl.analysis.points import flatten_points, swap_to_coordinate
from otafl.analysis.summary import format_number
from otafl.analysis.tables import build_grid, format_text
from otafl.plots import find_main_variable
from otafl.results.coordinates import format_value


def main() -> None:
    parser = make_parser(__doc__, default="results/fashion_mnist_gbma_ci")
    parser.add_argument("--variable", help="default: the main accuracy that the result has")
    parser.add_argument("--axis", default="power", help="what is compared; default %(default)s")
    parser.add_argument("--baseline", help="against which value; default: the first")
    parser.add_argument("--level", type=float, default=0.95, help="default %(default)s")
    parser.add_argument("--figure", type=Path, help="default: beside the result")
    args = parser.parse_args()
    ds = swap_to_coordinate(open_result_at(args.result, args.sel), args.axis)
    variable = args.variable or find_main_variable(ds)
    others = [str(dim) for dim in ds["final_round"].dims if dim != args.axis]
    across = [dim for dim in ("snr_db", *others[::-1]) if dim in others][:1]
    table = build_grid(ds, variable, across, rows=[args.axis])
    print(table.caption)
    print(format_text(table))
    if not ds.attrs["complete"]:
        print("the sweep is unfinished: - marks what has not been run")
    first = ds[args.axis].values[0] if args.baseline is None else args.baseline
    tests = compare_pairs(ds, variable, args.axis, first, args.level)
    tests = flatten_points(tests.assign_coords(final_round=tests["pairs"].astype(float)))
    title = f"Differences from {args.axis} {format_value(first)}, trial by trial"
    said = f"{args.level:.0%} interval"
    tested = ("p (t, Holm)", "p (Wilcoxon)", "pairs", "unpaired trials a pair is worth")
    print_head(title, "point", "difference", said, *tested)
    for i, point in enumerate(tests["point"].values):
        of = {name: float(values.isel(point=i)) for name, values in tests.items()}
        said = (
            format_number(of[n], 3) for n in ("difference", "low", "high", "p_holm", "p_wilcoxon")
        )
        difference, low, high, p, signed = said
        pairs = f"{of['pairs']:.0f}" + (f", {of['dropped']:.0f} lost" if of["dropped"] else "")
        within = "-" if low == "-" else f"{low} to {high}"
        print_row(
            point, difference, within, p, signed, pairs, format_number(of["variance_ratio"], 2)
        )
    if int(tests["pairs"].max()) < MIN_PAIRS:
        print(f"\nfewer than {MIN_PAIRS} pairs tell no significance; raise `trials`")
    beside = args.result if args.result.is_dir() else args.result.parent
    figure = args.figure or beside / f"{args.result.stem}_{args.axis}.png"
    draw_curves(ds, variable, across[0] if across else args.axis, figure)


if __name__ == "__main__":
    command(main)
