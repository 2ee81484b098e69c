"""Federated methods: what devices train and send, and how the server uses it."""
