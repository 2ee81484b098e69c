"""The tables of who takes part, of what devices are and of how they live, for
`otafl.core.registry_tables`."""

from __future__ import annotations

from otafl.core.registry_entry import Entry, table

_HARDWARE = "otafl.devices.hardware:devices_of"
_RULES = "otafl.devices.protocol:rules_of"

DEVICES: dict[str, dict[str, Entry]] = {
    "selection": table(
        "otafl.selection.config",
        (
            "uniform",
            "UniformSelectionConfig",
            "otafl.selection.uniform:Uniform",
            "uniformly, without replacement",
        ),
        (
            "round_robin",
            "RoundRobinSelectionConfig",
            "otafl.selection.round_robin:RoundRobin",
            "in turn",
        ),
        (
            "best_channel",
            "BestChannelSelectionConfig",
            "otafl.selection.best_channel:BestChannel",
            "the largest channel gains",
            "Knopp and Humblet 1995",
        ),
        (
            "proportional_fair",
            "ProportionalFairSelectionConfig",
            "otafl.selection.proportional_fair:ProportionalFair",
            "the largest rates relative to each device's average",
            "Viswanath, Tse, Laroia 2002",
        ),
        (
            "threshold",
            "ThresholdSelectionConfig",
            "otafl.selection.threshold:Threshold",
            "all devices with channels that are good enough",
        ),
        (
            "update_norm",
            "UpdateNormSelectionConfig",
            "otafl.selection.update_norm:UpdateNorm",
            "all train, the largest updates are sent",
            "Amiri, Gunduz, Kulkarni, Poor 2021",
        ),
    ),
    "levels": table(
        "otafl.levels.config",
        (
            "fixed",
            "FixedLevelsConfig",
            "otafl.levels.levels:FixedLevels",
            "every device keeps one model size",
        ),
        (
            "dynamic",
            "DynamicLevelsConfig",
            "otafl.levels.levels:DynamicLevels",
            "every device draws a model size anew each round",
        ),
        (
            "compute",
            "ComputeLevelsConfig",
            "otafl.levels.levels:ComputeLevels",
            "the fastest devices have the largest models",
        ),
        (
            "memory",
            "MemoryLevelsConfig",
            "otafl.levels.levels:MemoryLevels",
            "the largest model that a device can hold",
        ),
        (
            "channel",
            "ChannelLevelsConfig",
            "otafl.levels.levels:ChannelLevels",
            "the best heard of a round have the largest models",
        ),
        (
            "deadline",
            "DeadlineLevelsConfig",
            "otafl.levels.levels:DeadlineLevels",
            "the largest model that a device can train and send in time",
        ),
    ),
    "compute": table(
        "otafl.devices.config_hardware",
        ("fixed", "FixedComputeConfig", _HARDWARE, "all devices equally fast"),
        ("lognormal", "LognormalComputeConfig", _HARDWARE, "speeds drawn from a lognormal law"),
        ("classes", "ClassesComputeConfig", _HARDWARE, "devices of several kinds"),
    )
    | table(
        "otafl.devices.config_drawn",
        (
            "drawn",
            "DrawnComputeConfig",
            _HARDWARE,
            "speed, memory, battery, radio each drawn from a law of its own",
        ),
        ("csv", "CsvComputeConfig", _HARDWARE, "devices from a CSV file, a row each"),
    )
    | table(
        "otafl.devices.config_presets",
        (
            "mcu",
            "McuComputeConfig",
            _HARDWARE,
            "a sensor's microcontroller (nRF52840, Cortex-M4F) on a coin cell",
            "Nordic Semiconductor, nRF52840 Product Specification",
        ),
        (
            "phone",
            "PhoneComputeConfig",
            _HARDWARE,
            "smartphones, clock uniform over 1 to 2 GHz",
            "Yang et al. 2021",
        ),
        (
            "edge_gpu",
            "EdgeGpuComputeConfig",
            _HARDWARE,
            "an embedded GPU (Jetson TX2) between its power modes",
            "NVIDIA, Jetson TX2 power modes",
        ),
    ),
    "protocol": table(
        "otafl.devices.config_protocol",
        (
            "rounds",
            "RoundsConfig",
            _RULES,
            "the slot waits for all who take part, or for the deadline",
        ),
        (
            "periodic",
            "PeriodicConfig",
            _RULES,
            "a slot every so many seconds for those who are ready",
        ),
        (
            "quorum",
            "QuorumConfig",
            _RULES,
            "semi-asynchronous: a slot when so many devices are ready",
            "Nguyen et al. 2022",
        ),
        (
            "asynchronous",
            "AsynchronousConfig",
            _RULES,
            "each device transmits when it is ready, first come, first served",
            "Xie et al. 2019",
        ),
    ),
    "availability": table(
        "otafl.devices.config_availability",
        (
            "always",
            "AlwaysAvailableConfig",
            "otafl.devices.availability:AlwaysAvailable",
            "there all the time",
        ),
        (
            "markov",
            "MarkovAvailabilityConfig",
            "otafl.devices.availability:MarkovAvailability",
            "comes and goes after exponential times",
            "Gilbert 1960",
        ),
        (
            "diurnal",
            "DiurnalAvailabilityConfig",
            "otafl.devices.availability:DiurnalAvailability",
            "there with a probability that follows the time of day",
            "Bonawitz et al. 2019",
        ),
        (
            "trace",
            "TraceAvailabilityConfig",
            "otafl.devices.availability_trace:TraceAvailability",
            "the intervals of a CSV file",
        ),
    ),
    "frequency": table(
        "otafl.devices.config_frequency",
        (
            "full",
            "FullFrequencyConfig",
            "otafl.devices.frequency:FullFrequency",
            "at the highest clock frequency",
        ),
        (
            "deadline",
            "DeadlineFrequencyConfig",
            "otafl.devices.frequency:DeadlineFrequency",
            "the slowest clock that meets the deadline, which costs least energy",
            "Tran et al. 2019",
        ),
        (
            "joint",
            "JointFrequencyConfig",
            "otafl.devices.frequency_joint:JointFrequency",
            "clock and transmit power of a digital uplink that cost least energy by the deadline",
            "Yang et al. 2021",
        ),
    ),
}
