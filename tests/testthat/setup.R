# One Python for all tests, with four devices. No test is skipped where it is missing: see CONTRIBUTING.md.
simulate_gpus(4)
invisible(tf$config$list_logical_devices()) # starts them: no test can change their number
