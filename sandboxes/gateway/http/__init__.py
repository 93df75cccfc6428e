"""Routes: who may do what, what a body holds, how a call meets its client, the OpenAPI document."""
