"""Results: their variables, data sets, files, checksums, origins and models."""
