"""Any torch training loop, watched through torch's own calls."""
