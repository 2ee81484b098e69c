"""Define `otafl export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otafl.cli.app import ResultFile, Slices, Trust, parse_selection, say
from otafl.core.console import make_console

if TYPE_CHECKING:
    from otafl.exporting.deployment import Exported


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
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare scores and accuracy.")
    ] = True,
) -> None:
    """Export a trained model, and measure it."""
    chosen = parse_selection(sel)
    from otafl.exporting import deployment

    model = deployment.open_models(result, chosen, trial, view, device, trust)
    made = deployment.export(model, to.value, out, check)
    _print(made)
    if made.faults:
        for fault in made.faults:
            say(f"check failed: {fault}")
        raise typer.Exit(1)


def _print(made: Exported) -> None:
    from rich.table import Table

    table = Table(box=None)
    for title in ("runtime", "file bytes", "latency us (range)", "accuracy"):
        table.add_column(title, justify="left" if title == "runtime" else "right")
    for line in made.lines:
        size = "" if line.file_bytes is None else f"{line.file_bytes:,}"
        accuracy = "not checked" if line.accuracy is None else f"{line.accuracy:.4f}"
        accuracy = "no classes" if accuracy == "nan" else accuracy
        table.add_row(line.runtime, size, str(line.latency), accuracy)
    make_console().print(table)
    typer.echo(f"parameters: {made.parameters:,}  multiplications a sample: {made.macs:,}")
    if made.recorded is not None:
        typer.echo(f"accuracy in the result: {made.recorded:.4f}")
    typer.echo(str(made.path))
