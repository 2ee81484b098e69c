"""Methods whose server steps before all devices are ready."""
