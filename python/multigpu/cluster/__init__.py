"""Several machines: workers that train one model together, each on its own devices. A worker is one of them."""
