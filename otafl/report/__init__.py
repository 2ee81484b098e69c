"""Write a result as one page that needs nothing but a browser: `otafl report`.

Settings, tables of final values, figures, a part to explore and environment in one HTML file.
Nothing is loaded from elsewhere, and no script runs but the page's own two, which the page's policy
names by their hashes. All text is escaped by the template, or becomes a node of text.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import xarray as xr

from otafl.analysis import cautions
from otafl.analysis.cautions import describe_mixed_budgets
from otafl.analysis.points import describe_slices, select_slices
from otafl.core.suggestions import format_count
from otafl.report import pictures, tables
from otafl.report.explorer import build_explorer, describe_missing, load_library
from otafl.report.pictures import MAX_POINTS
from otafl.results import origins
from otafl.results.end_values import describe_diverged

__all__ = ["describe_missing", "render_page"]

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_page(
    ds: xr.Dataset,
    source: Path | str,
    sel: Mapping[str, Sequence[str]] | None = None,
    announce: Callable[[str], None] = lambda step: None,
) -> str:
    """Return the page of a result, as HTML.

    Parameters
    ----------
    source : the file or folder that the result was opened from.
    sel : axis -> the values that the figures, tables and tests are of; all for None.
    announce : is called with the name of each step before it begins.

    Raises
    ------
    UserError : for an axis or a value that is not there.
    """
    sel = sel or {}
    said = describe_slices(ds, sel)
    ds = select_slices(ds, sel)
    loader = jinja2.PackageLoader("otafl", "report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    style, _, _ = loader.get_source(environment, "page.css")
    program, _, _ = loader.get_source(environment, "explorer.js")
    library = load_library()
    figures = pictures.draw_figures(ds, announce)
    announce("tables and paired tests")
    texts: dict[str, Any] = {
        "style": style,
        "library": library,
        "program": program,
        "policy": _make_policy(library, program) if library else POLICY,
        "title": ds.attrs["title"],
        "facts": list_facts(ds),
        "notices": [
            *([f"Only these values are shown: {said}."] if said else []),
            *list_notices(ds),
        ],
        "tables": tables.build_value_tables(ds),
        "comparisons": tables.build_comparisons(ds),
        "figures": figures,
        "scenario": str(ds.attrs["scenario"]),
        "command": format_command(ds, Path(source)),
        "environment": origins.list_environment(ds.attrs),
    }
    template = environment.get_template("page.html")
    if library is None or ds["final_round"].size > MAX_POINTS:
        return template.render(texts, explorer=None)
    announce("part to explore")
    return template.render(texts, explorer=build_explorer(ds))


def _make_policy(*scripts: str) -> str:
    """Return the page's policy, which allows these scripts and no others."""
    hashes = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return f"{POLICY}; script-src {allowed}; base-uri 'none'; form-action 'none'"


def list_facts(ds: xr.Dataset) -> list[str]:
    """Count how much ran: points, trials, rounds, devices."""
    points, rounds = ds["final_round"], ds["round"]
    facts = [format_count(points.size, "point")] if points.ndim else []
    facts += [format_count(ds.sizes["trial"], "trial")]
    facts += [
        f"{format_count(int(rounds[-1]), 'round')} in {format_count(ds.sizes['round'], 'record')}"
    ]
    if "device" in ds.dims:
        facts.append(format_count(ds.sizes["device"], "device"))
    return facts


def list_notices(ds: xr.Dataset) -> list[str]:
    """List what a reader must know before using a number."""
    points, said = ds["final_round"], []
    if not ds.attrs["complete"]:
        done = int(points.notnull().sum())
        said.append(
            f"Unfinished: {done} of {points.size} points are there, and perhaps not all of their "
            "rounds. The command under Settings resumes it."
        )
    if several := origins.format_mixed_versions(ds.attrs):
        said.append(f"{several[0].upper()}{several[1:]}.")
    if lost := describe_diverged(ds):
        said.append(f"{lost}.")
    more = (
        cautions.describe_lost_runs(ds),
        cautions.describe_ended_paths(ds),
        cautions.describe_arrivals(ds),
        cautions.describe_round_interval(ds),
        describe_mixed_budgets(ds),
    )
    said += [f"{text[0].upper()}{text[1:]}." for text in more if text]
    trials = points.size * ds.sizes["trial"]
    for name, text in (
        ("end_round", "ended early, with no time or no devices left; their last values are kept"),
        ("stop_round", "stopped at their target; their last values are kept"),
    ):
        count = int(ds[name].notnull().sum()) if name in ds else 0
        if count:
            said.append(f"{count} of {format_count(trials, 'trial')} {text}.")
    if guessed := cautions.describe_chance(ds):
        said.append(f"{guessed[0].upper()}{guessed[1:]}.")
    if points.size > MAX_POINTS:
        said.append(f"More than {MAX_POINTS} points are not drawn; --sel chooses fewer.")
    return said


def format_command(ds: xr.Dataset, source: Path) -> str:
    """Return what runs the same scenario again, or resumes it, once the settings are in a file."""
    name = str(ds.attrs["title"])
    verb = "run" if source.suffix == ".nc" else "sweep"
    path = str(source).encode(errors="replace").decode()  # a name need not be UTF-8
    return shlex.join(["otafl", verb, f"{name}.yaml", "--out", path])
