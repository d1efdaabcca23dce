"""Whether learning-rate schedulers tick when they should: the plan, the forecast, the watch."""
