"""Define `otafl export`."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from otafl.cli.app import ResultFile, Slices, Trust, parse_selection, say

Target = StrEnum("Target", ["onnx", "litert", "pytorch", "safetensors", "peft"])
"""Formats of exported models."""


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
