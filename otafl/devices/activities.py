"""Name what devices do with their time, and what they spend energy on."""

ACTIVITIES = ("receive", "compute", "wait", "transmit", "lost", "left", "empty", "crashed")
"""lost: received and computed for an update that never got to a slot. left, empty, crashed: away
because it is not available, has no charge, or reboots."""

CAUSES = ("compute", "transmit", "circuit", "receive", "idle")
"""compute: local work. transmit: what the power amplifier draws for what is radiated. circuit: the
radio's circuits while it transmits. receive: the radio during the downlink. idle: waiting for the
slot, and sleeping."""
