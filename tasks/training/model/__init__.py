"""The policy: loaded, spread over ranks, and what it says of packed rows."""
