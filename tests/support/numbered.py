"""A toy method whose updates say whose they are."""

from __future__ import annotations

from contract import probes

from otafl.core.contracts import Broadcast, Cohort, Group, Payload


class Numbered(probes.Probe):
    """Device k's update is k + 1 everywhere."""

    def payload(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Payload:
        rows = (cohort.device + 1.0).to(broadcast.tensors["x"].dtype)
        return (Group({"x": rows[:, None].repeat(1, self.width)}),)
