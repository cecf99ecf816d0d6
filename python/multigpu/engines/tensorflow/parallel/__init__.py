"""One call spread over devices, and the parallel model around it."""
