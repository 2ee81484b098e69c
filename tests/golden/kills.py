"""Runs a sweep undisturbed, and then again as programs that are killed without being asked until so
many were: children of a program that has loaded everything, so that a life costs no seconds of
importing.

    python kills.py SCENARIO.yaml FOLDER SEED KILLS

Writes FOLDER/whole and FOLDER/killed0, FOLDER/killed1, ..., each begun when the one before was
finished. Prints the number of kills, and of lives that found something kept.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from otafl import load_scenario, sweeping
from otafl.scenario import Scenario

CHECKPOINT_EVERY = 2


def life(scenario: Scenario, folder: Path, seconds: float) -> bool:
    """A sweep's process, killed after so long; whether it was."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sweeping.sweep(scenario, folder, checkpoint_every=CHECKPOINT_EVERY)
            code = 0
        finally:
            os._exit(code)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        sys.exit("a life failed")
    return os.WIFSIGNALED(status)


def main() -> None:
    scenario, home = load_scenario(sys.argv[1]), Path(sys.argv[2])
    chance, wanted = random.Random(int(sys.argv[3])), int(sys.argv[4])
    sweeping.run(scenario.model_copy(update={"sweep": {}}))  # loads what is loaded late
    began = time.monotonic()
    sweeping.sweep(scenario, home / "whole", checkpoint_every=CHECKPOINT_EVERY)
    longest = 0.5 * (time.monotonic() - began)
    kills = kept = number = 0
    while kills < wanted:
        folder = home / f"killed{number}"
        found = any(folder.glob("running/*")) or any(folder.glob("parts/*"))
        if life(scenario, folder, chance.uniform(0.0, longest)):
            kills += 1
            kept += found
        else:
            number += 1
    sweeping.sweep(scenario, home / f"killed{number}")
    print(kills, kept)


if __name__ == "__main__":
    main()
