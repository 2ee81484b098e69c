"""Counts the files of otafl that a transmission, a round and a run enter.

    python scripts/files_entered.py [--list]

Ten devices train an MLP by FedAvg, and send over the air with truncated channel inversion. A file
counts if a function of it is called in the second round or, for the run, from the scenario to the
result. --list also prints the files of a transmission in the order in which it enters them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import otafl
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario
from otafl.uplink.coherent.over_the_air import OverTheAir

PACKAGE = str(Path(otafl.__file__).parent)
SCENARIO: dict[str, Any] = {
    "name": "files",
    "data": "digits",
    "model": {"name": "mlp", "hidden": [32]},
    "transport": "over_the_air",
    "power": "tci",
    "devices": {"count": 10},
    "training": {"rounds": 6, "local_steps": 2, "batch_size": 10, "eval_every": 3},
}


class Trace:
    """Files of otafl in which functions are called, in the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def record(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call, and record the files that it enters."""
        sys.setprofile(self._enter)
        try:
            return call()
        finally:
            sys.setprofile(None)

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self.calls.append(name.removeprefix(f"{PACKAGE}/"))

    @property
    def files(self) -> list[str]:
        """The files, each once."""
        return list(dict.fromkeys(self.calls))

    @property
    def num_changes(self) -> int:
        """The number of calls that enter another file than the call before."""
        return sum(one != other for one, other in zip(self.calls, self.calls[1:], strict=False))


def trace_transmission(engine: Engine, round: int) -> Trace:
    """Return the trace of the uplink in a round."""
    trace, transmit = Trace(), OverTheAir.transmit
    uplink = engine.parts.link.transport
    assert isinstance(uplink, OverTheAir)
    vars(uplink)["transmit"] = lambda delivery: trace.record(lambda: transmit(uplink, delivery))
    engine.run_round(round)
    del vars(uplink)["transmit"]
    return trace


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the files of a transmission")
    given = parser.parse_args()
    engine = Engine(assemble(expand(load_scenario(SCENARIO)), range(1)))
    engine.run_round(0)
    transmission, round, run = trace_transmission(engine, 1), Trace(), Trace()
    round.record(lambda: engine.run_round(2))
    with tempfile.TemporaryDirectory() as folder:
        run.record(lambda: otafl.run(SCENARIO, Path(folder) / "run.nc"))
    for name, trace in (("transmission", transmission), ("round", round), ("run", run)):
        print(
            f"{name}: {len(trace.files)} files, {trace.num_changes} changes of file in "
            f"{len(trace.calls)} calls"
        )
    if given.list:
        print(*transmission.files, sep="\n")


if __name__ == "__main__":
    main()
