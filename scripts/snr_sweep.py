"""A metric at the end of each trial against the SNR, for every other choice of a sweep: a table, a
figure and a CSV.

    python scripts/snr_sweep.py results/quickstart.nc --out snr.png --csv snr.csv
    python scripts/snr_sweep.py results/quickstart.nc --variable aggregation_nmse --sel power=tci
"""

from __future__ import annotations

from pathlib import Path

from tables import command, draw_curves, make_parser, open_result_at

from otafl.analysis.tables import build_grid, find_best, format_markdown, format_text, write_grid
from otafl.plots import find_main_variable


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--variable", help="default: the main accuracy that the result has")
    parser.add_argument("--x", default="snr_db", help="axis; default %(default)s")
    parser.add_argument("--markdown", action="store_true", help="best of each SNR in bold")
    parser.add_argument("--out", type=Path, help="draw it: PNG, PDF or SVG")
    parser.add_argument("--csv", type=Path, help="write mean, deviation and trials of each cell")
    args = parser.parse_args()
    ds = open_result_at(args.result, args.sel)
    variable = args.variable or find_main_variable(ds)
    table = build_grid(ds, variable, columns=[args.x])
    print(f"{table.caption}\n")
    print(
        format_markdown(table, find_best(table, "column")) if args.markdown else format_text(table)
    )
    if not ds.attrs["complete"]:
        print("the sweep is unfinished: - marks what has not been run")
    if args.csv:
        write_grid(table, args.csv)
        print(f"table: {args.csv}")
    if args.out:
        draw_curves(ds, variable, args.x, args.out)


if __name__ == "__main__":
    command(main)
