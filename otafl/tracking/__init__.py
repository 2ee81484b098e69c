"""Tracking of runs during evaluation: files to watch, or experiment-tracking services.

What trackers write is beside the result: `<name>.track/` of a file, `track/` in the folder of a
sweep, with a folder for each point and a file or folder for each trial.
"""

from __future__ import annotations

from pathlib import Path


def get_track_folder(result: Path) -> Path:
    """Return the folder of the runs whose result is this file."""
    return result.with_name(f"{result.stem}.track")
