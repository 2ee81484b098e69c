"""What devices are: hardware, batteries, when they are there, how fast they clock."""
