"""A first port: a small published training, and three tries at it on Lightning."""
