"""Training rows: read, checked, packed without padding, what they share once."""
