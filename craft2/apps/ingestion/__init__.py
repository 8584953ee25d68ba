"""Real data to send through the queues: a year of flights, and this machine's own metrics."""
