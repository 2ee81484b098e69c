"""Devices with numbers of their own: a sensor's microcontroller, a phone, an edge GPU.

kappa follows from the power that computing draws at the highest clock frequency, P = kappa f^3.
What is measured, what is taken from a data sheet and what is a convention is said of each number,
and in docs/devices.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from otafl.core.settings import stackable
from otafl.devices.config_hardware import ComputeConfig, bounds_of


def _changed(name: str, default: float) -> Any:
    """A quantity with another default."""
    what = ComputeConfig.model_fields[name].description
    return stackable(default, **bounds_of(name), description=what)


class McuComputeConfig(ComputeConfig):
    """A wireless sensor's microcontroller: Nordic nRF52840, an Arm Cortex-M4F at 64 MHz with 256 kB
    of RAM and a 2.4 GHz radio, on a coin cell.

    Nordic Semiconductor, nRF52840 Product Specification, at 3 V with the DC/DC converter: the CPU
    draws 3.3 mA at 64 MHz (9.9 mW, and kappa is 9.9e-3 / 64e6^3); at 1 Mbit/s the radio receives at
    6.26 mA and transmits at 6.40 mA with 0 dBm and at 16.40 mA with 8 dBm, the straight line
    through which is 13.5 mW of circuits and an amplifier of 18 %; asleep with all RAM retained and
    the clock running it draws 3.16 uA. The M4 adds or multiplies in one cycle and loads in about
    one (Arm, Cortex-M4 Technical Reference Manual, FPU instruction timing): 2 operations in 4
    cycles. A CR2032 cell has 225 mAh at 3 V (IEC typical). That it comes back at a tenth of its
    charge is a convention. There is one clock frequency. Set channel.tx_power_dbm to the radio's,
    0 to 8.
    """

    name: Literal["mcu"] = "mcu"
    frequency_hz: float = stackable(64e6, gt=0, description="clock frequency")
    flops_per_cycle: float = _changed("flops_per_cycle", 0.5)
    kappa: float = _changed("kappa", 3.78e-26)
    memory_mb: float | None = _changed("memory_mb", 0.25)
    battery_j: float | None = _changed("battery_j", 2430.0)
    circuit_w: float = _changed("circuit_w", 13.5e-3)
    receive_w: float = _changed("receive_w", 18.8e-3)
    idle_w: float = _changed("idle_w", 9.5e-6)
    sleep_w: float = _changed("sleep_w", 9.5e-6)
    efficiency: float = _changed("efficiency", 0.18)


PHONE_BATTERY = {
    "battery_j": 55440.0,
    "circuit_w": 1.288,
    "receive_w": 1.81,
    "idle_w": 1.06,
    "sleep_w": 0.02,
    "efficiency": 0.35,
}
"""What `battery: true` gives a phone."""


class PhoneComputeConfig(ComputeConfig):
    """Smartphones of unequal speed: clock frequencies uniform over 1 to 2 GHz, drawn once for each
    device and trial.

    2 GHz and kappa are the values of Yang et al. 2021; that frequencies spread evenly down to 1 GHz
    follows Tran et al. 2019 ("Federated Learning over Wireless Networks: Optimization Model Design
    and Analysis"). These are conventions of simulation studies, not measurements of phones.

    With `battery: true` the phone runs on 4,000 mAh at 3.85 V (a usual size) and has the LTE radio
    that Huang et al. 2012 measured ("A Close Examination of Performance and Power Characteristics
    of 4G LTE Networks"): 1.288 W while it transmits or receives, 52 mW more for each Mbit/s that
    it receives (here 10), 1.06 W while it stays connected, and 20 mW idle, 594 mW for 43.2 ms in
    1,280 ms. An amplifier of 35 % is a convention.
    """

    name: Literal["phone"] = "phone"
    frequency_min_hz: float = stackable(
        1e9, gt=0, description="highest clock frequency of the slowest phone"
    )
    frequency_max_hz: float = stackable(
        2e9, gt=0, description="highest clock frequency of the fastest phone"
    )
    battery: bool = Field(
        False,
        description="on a battery, with the draw of an LTE radio: gives battery_j, circuit_w, "
        "receive_w, idle_w, sleep_w and efficiency a phone's values where they are not given",
    )

    @model_validator(mode="before")
    @classmethod
    def _on_battery(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("battery") is True:
            return PHONE_BATTERY | dict(values)
        return values

    @model_validator(mode="after")
    def _ordered(self) -> PhoneComputeConfig:
        if self.frequency_min_hz > self.frequency_max_hz:
            raise ValueError(
                f"frequency_min_hz must not exceed frequency_max_hz, got "
                f"{self.frequency_min_hz:g} and {self.frequency_max_hz:g}"
            )
        return self


class EdgeGpuComputeConfig(ComputeConfig):
    """An embedded GPU: NVIDIA Jetson TX2, 256 Pascal cores and 8 GB, between its power modes Max-P
    (1.12 GHz, 15 W) and Max-Q (0.85 GHz, 7.5 W), on mains.

    kappa is 15 W / 1.12e9^3; at 0.85 GHz that makes 6.6 W, against 7.5 W of Max-Q, so the cubic law
    is good to an eighth over this range, and clocks go no lower. The modes' powers are those of the
    whole module. 256 cores do 512 operations a cycle at best; that training reaches half of this is
    a convention, and small models reach less. The radio is an 802.11n card with one antenna
    (Halperin et al. 2010, "Demystifying 802.11n Power Consumption": 1.28 W transmitting, what it
    radiates included, and 0.94 W receiving). 2 W while it waits or has nothing to do are a
    convention.
    """

    name: Literal["edge_gpu"] = "edge_gpu"
    frequency_hz: float = stackable(1.12e9, gt=0, description="highest clock frequency")
    flops_per_cycle: float = _changed("flops_per_cycle", 256.0)
    kappa: float = _changed("kappa", 1.07e-26)
    frequency_min_share: float = _changed("frequency_min_share", 0.76)
    memory_mb: float | None = _changed("memory_mb", 8192.0)
    circuit_w: float = _changed("circuit_w", 1.28)
    receive_w: float = _changed("receive_w", 0.94)
    idle_w: float = _changed("idle_w", 2.0)
    sleep_w: float = _changed("sleep_w", 2.0)
