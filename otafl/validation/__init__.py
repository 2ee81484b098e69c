"""Laws of the installed program, checked by simulation.

`otafl validate` runs them. Each law is a closed form from the literature with its source. It is
compared with a number that is measured through the uplink as scenarios use it. The number must lie
in an interval at a stated false-alarm level.
"""
