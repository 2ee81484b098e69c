"""Define the commands that read a result, such as `otafl show` and `otafl archive`."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from otafl.cli.app import ResultFile, Slices, Trust, parse_selection, say, split_names, warn

Target = StrEnum("Target", ["onnx", "litert", "pytorch", "safetensors", "peft"])
"""Formats of exported models."""


def show(
    result: ResultFile,
    all_: Annotated[bool, typer.Option("--all", help="Every point, however many.")] = False,
    variables: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="E.g. aggregation_nmse,tx_energy_j; else what fits."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Also versions, commit, hashes and processor.")
    ] = False,
) -> None:
    """Summarise a result."""
    from otafl.analysis.summary import print_environment, print_summary
    from otafl.results.files import open_results

    dataset = open_results(result)
    chosen = None if variables is None else split_names(variables)
    print_summary(dataset, every=all_, variables=chosen)
    if full:
        print_environment(dataset)


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="Result, folder of a sweep, or scenario.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="What it is compared with.")],
    tolerance: Annotated[
        float, typer.Option(metavar="REL", help="Relative difference that counts as equal.")
    ] = 0.0,
) -> None:
    """Show what differs; exit code 1 if anything does."""
    from otafl.analysis.comparison import compare, print_comparison

    found = compare(a, b, tolerance)
    print_comparison(found)
    if found.differs:
        raise typer.Exit(1)


def convert(
    result: ResultFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Ends in .zarr, .nc or .csv.")],
    variables: Annotated[
        str | None, typer.Option(metavar="LIST", help="E.g. test_accuracy,test_loss; else all.")
    ] = None,
) -> None:
    """Write a result as Zarr, NetCDF or CSV."""
    from otafl.results.conversion import convert as write

    chosen = None if variables is None else split_names(variables)
    for line in write(result, out, chosen):
        typer.echo(line, err=True)
    typer.echo(str(out))


def archive(
    result: ResultFile,
    out: Annotated[Path, typer.Argument(metavar="OUT.zip", help="New file.")],
    author: Annotated[list[str], typer.Option(metavar="NAME", help="Again for more authors.")],
    license: Annotated[str, typer.Option(metavar="SPDX", help="Licence, e.g. CC-BY-4.0.")],
) -> None:
    """Write a result and its inputs as one zip file for a DOI."""
    from otafl.results.archive import write_archive

    warn(write_archive(result, out, author, license))
    typer.echo(str(out))


def verify(
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE|FOLDER", help="Result, models, or folder of a sweep."),
    ],
) -> None:
    """Compare files with their checksums; exit code 2 if any differs.

    Results, parts, models, checkpoints, records and plan, each a line; then what to do. Nothing
    that the files name is run.
    """
    from otafl.sweeping.verifying import advise
    from otafl.sweeping.verifying import verify as check

    findings = []
    for finding in check(source):
        findings.append(finding)
        typer.echo(finding.describe(source if source.is_dir() else source.parent))
    typer.echo(advise(findings, source))
    if any(finding.fault for finding in findings):
        raise typer.Exit(2)


def export(
    result: ResultFile,
    to: Annotated[Target, typer.Option(help="Format.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A .onnx, .tflite, .pt2 or .safetensors file, or for peft a folder.",
        ),
    ],
    view: Annotated[
        str, typer.Option(help="Which model: global, personal, local, mean, level0, ...")
    ] = "global",
    device: Annotated[
        int | None, typer.Option(metavar="K", help="Whose, where each device has its own.")
    ] = None,
    trial: Annotated[int, typer.Option(metavar="N", help="Of which trial.")] = 0,
    sel: Slices = None,
    trust: Trust = False,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare scores.")] = True,
) -> None:
    """Export a trained model, and check its scores."""
    chosen = parse_selection(sel)
    from otafl.exporting import deployment

    model = deployment.open_models(result, chosen, trial, view, device, trust)
    made = deployment.export(model, to.value, out, check)
    typer.echo(
        f"{made.file_bytes:,} bytes, {made.parameters:,} parameters, {made.macs:,} multiplications "
        "a sample"
    )
    for runtime, accuracy in made.accuracies.items():
        said = "no classes" if math.isnan(accuracy) else f"accuracy {accuracy:.4f}"
        typer.echo(f"{runtime}: {said}")
    typer.echo(str(made.path))
    if made.fault:
        say(f"check failed: {made.fault}")
        raise typer.Exit(1)
