"""Methods in which each device has a model of its own."""
