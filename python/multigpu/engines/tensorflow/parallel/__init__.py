"""One call spread over devices, and the steps and methods of a parallel model."""
