"""Type-based multiple access, which counts the devices that have a value."""
