"""Live training state, read without changing it, as values of `traingen.records`."""
