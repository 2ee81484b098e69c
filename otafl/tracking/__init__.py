"""Tracking of runs during evaluation: files to watch, or experiment-tracking services.

What trackers write is beside the result: `<name>.track/` of a file, `track/` in the folder of a
sweep, with a folder for each point and a file or folder for each trial.
"""

from __future__ import annotations

from pathlib import Path

from otafl.core import registry


def get_track_folder(result: Path) -> Path:
    """Return the folder of the runs whose result is this file."""
    return result.with_name(f"{result.stem}.track")


def get_sweep_track_folder(folder: Path) -> Path:
    """Return the folder of the runs whose results are in this one."""
    return folder / "track"


def clear(folder: Path) -> None:
    """Remove what trackers wrote of earlier runs, and nothing else."""
    for name in registry.list_names("track"):
        pattern = registry.load_component("track", name).files
        for path in folder.glob(pattern) if pattern else ():
            path.unlink()
