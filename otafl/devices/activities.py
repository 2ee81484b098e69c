"""Names of the activities of devices, and of the causes of their energy consumption."""

ACTIVITIES = ("receive", "compute", "wait", "transmit", "lost", "left", "empty", "crashed")
"""Activities of a timeline.

lost: reception and local work for an update that never gets into a slot. left, empty, crashed:
absence because the device is not available, has no charge or restarts.
"""

CAUSES = ("compute", "transmit", "circuit", "receive", "idle")
"""Causes of energy consumption.

compute: local work. transmit: draw of the power amplifier. circuit: the radio's circuits during a
transmission. receive: the radio during the downlink. idle: waiting for the slot, and sleep.
"""
