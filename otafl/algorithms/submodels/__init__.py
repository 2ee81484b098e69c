"""Methods in which weak devices train smaller models."""
