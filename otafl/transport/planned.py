"""What devices can plan with of a digital uplink before they know their updates."""

from __future__ import annotations

import torch

from otafl.core.contracts import Codec, Csi, Group, Hyper
from otafl.core.settings import Settings
from otafl.devices.frequency import OrthogonalUplink
from otafl.transport.config import DigitalConfig


def orthogonal_uplink(
    config: Settings, hyper: Hyper, codec: Codec, csi: Csi
) -> OrthogonalUplink | None:
    """None where the transport is not digital. hyper: of the transport. An update counts as one
    block as large as what the device received."""
    if not isinstance(config, DigitalConfig):
        return None
    gap_db = hyper["snr_gap_db"].double()
    if config.outage:
        gap_db = gap_db + hyper["margin_db"].double()

    def bits(reals: int) -> float:
        return codec.bits(Group({"update": torch.empty(1, reals, device="meta")}))

    return OrthogonalUplink(
        access=config.access,
        gap=(10.0 ** (gap_db / 10.0)).cpu().numpy(),
        rate_factor=hyper["rate_factor"].double().cpu().numpy(),
        bits=bits,
        csi=csi,
    )
