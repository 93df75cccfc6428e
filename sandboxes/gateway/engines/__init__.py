"""The engines behind the gateway: HTTP to one, and which of several takes a call."""
