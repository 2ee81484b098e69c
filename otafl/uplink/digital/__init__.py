"""Orthogonal digital transmission of one packet for each device."""
