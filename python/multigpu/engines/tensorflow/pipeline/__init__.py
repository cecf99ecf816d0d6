"""Replicas of a template with parts: their slices pass through the stages of one trace, each on its device."""
