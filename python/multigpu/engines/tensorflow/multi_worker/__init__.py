"""The steps and verbs of a parallel model that several workers train together."""
