"""The uplink for a user's own training loop."""
