"""The steps and methods of a parallel model that several workers train together."""
