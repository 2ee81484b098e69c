"""Any result as a LaTeX table with booktabs: mean ± standard deviation of a variable at the end of
each trial, by axes; the best in bold. `--format markdown` writes the same for a web page.

    python scripts/latex_table.py results/quickstart.nc --columns snr_db --best column
    python scripts/latex_table.py results/quickstart.nc --columns snr_db --best power --level 0.05

With --level only that best is bold which a paired t-test tells from every other, after Holm.
"""

from __future__ import annotations

from pathlib import Path

from tables import command, make_parser, open_result_at

import otafl
from otafl.analysis.tables import build_grid, find_best, format_latex, format_markdown
from otafl.plots import find_main_variable


def parse_names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--variable", help="default: the main accuracy that the result has")
    parser.add_argument("--rows", type=parse_names, default=[], help="axes down; others follow")
    parser.add_argument(
        "--columns", type=parse_names, help="axes across; default: the first numeric"
    )
    parser.add_argument("--best", metavar="WHERE", help="bold: of each row, column, or by a dim")
    parser.add_argument("--smallest", action="store_true", help="the smallest is the best")
    parser.add_argument("--largest", action="store_true", help="default: that of an accuracy is")
    parser.add_argument("--level", type=float, help="bold only if significant, as 0.05")
    parser.add_argument("--label", default="", help="of the LaTeX table")
    parser.add_argument("--format", choices=("latex", "markdown"), default="latex")
    parser.add_argument("--out", type=Path, help="write it to a file")
    args = parser.parse_args()
    ds, columns = open_result_at(args.result, args.sel), args.columns
    if columns is None:
        free = [d for d in ds["final_round"].dims if d not in args.rows]
        columns = [d for d in free if ds[d].dtype.kind in "fiu" and d != "zip"][:1]
    table = build_grid(ds, args.variable or find_main_variable(ds), columns, args.rows)
    bold = None
    if args.best:
        largest = True if args.largest else False if args.smallest else None
        bold = find_best(table, args.best, largest, args.level)
    if args.format == "latex":
        said = format_latex(table, bold, args.label)
    else:
        said = f"{table.caption}\n\n{format_markdown(table, bold)}"
    if args.out is None:
        print(said)
        return
    try:
        args.out.write_text(f"{said}\n", encoding="utf-8")
    except OSError as error:
        raise otafl.UserError(f"{args.out}: cannot be written ({error.strerror})") from error
    print(f"table: {args.out}")


if __name__ == "__main__":
    command(main)
