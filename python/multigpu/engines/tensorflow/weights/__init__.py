"""Place weights, and send them and their gradients between devices."""
