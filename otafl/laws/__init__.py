"""Check laws of the installed uplink by running it.

`otafl validate` runs them. Each law is a closed form from the literature with its source, put
beside a number measured through the uplink as scenarios use it, and an interval for that number
at a stated false-alarm level.
"""
