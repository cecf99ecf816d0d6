"""Helpers for all packages: arguments, tables, attributes replaced for a while. No models and no devices."""
