"""Replicas of a template with parts: their slices go through the stages of one trace, each on its device."""
