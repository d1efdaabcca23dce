"""A small denoiser that learns where it errs most, and a probe that records how it chooses."""
