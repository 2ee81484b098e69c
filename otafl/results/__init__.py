"""Results: their variables, files and models."""
