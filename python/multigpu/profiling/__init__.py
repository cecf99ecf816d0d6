"""Estimates, measurements and plots."""
