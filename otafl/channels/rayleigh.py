"""Rayleigh fading, h ~ CN(0, 1), flat in frequency.

Fading is independent over devices. Over rounds and coherence blocks it is independent, or
correlated if devices move.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from otafl.channels import rice
from otafl.channels.base import Channel
from otafl.channels.jakes import count_correlation_rounds
from otafl.channels.scattering import FlatFadingSettings, FlatStates, build_scattering
from otafl.core.contracts import ChannelState


class Rayleigh(Channel):
    """Rayleigh fading; h [S, K, A, 1, 1] is complex with E|h|^2 = 1.

    A reflecting surface increases E|h|^2. For moving devices, whose h is a sum of sinusoids, the
    closed forms are accurate to 0.2 %. Example: `studies/physical_layer/nmse_snr.yaml`.
    """

    is_flat: ClassVar[bool] = True
    is_gaussian: ClassVar[bool] = True
    unit_mean_amplitude: ClassVar[float] = rice.RAYLEIGH_AMPLITUDE

    class Settings(FlatFadingSettings):
        name: Literal["rayleigh"] = "rayleigh"

    settings: Settings

    def prepare(self) -> None:
        self.has_closed_form = self.settings.antennas == 1 and self.settings.ris is None
        self.correlation_rounds = count_correlation_rounds(self.settings)
        self.num_sounded_paths = self.settings.num_sounded_paths
        self._states = FlatStates(self, build_scattering(self))

    def get_state(self, round: int) -> ChannelState:
        return self._states.get_state(round)

    def get_state_of_devices(self, round: int, devices: Tensor) -> ChannelState:
        return self._states.get_state(round, devices)

    def compute_mean_inverse(self, threshold: float, gain: float, error_variance: float) -> float:
        return rice.rayleigh_mean_inverse(threshold, gain, error_variance)
