"""One call spread over devices, and the steps and verbs of a parallel model."""
