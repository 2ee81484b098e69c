"""The round of a stack of trials, and its parts."""
