"""Model the devices: what they are made of, when they are there, when they send, what fails."""
