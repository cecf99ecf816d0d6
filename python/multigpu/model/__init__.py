"""`multi_gpu_model()`, the parallel model that it returns, and checks of the template."""
