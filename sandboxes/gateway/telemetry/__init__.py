"""What operators see: log lines, metrics, spans."""
