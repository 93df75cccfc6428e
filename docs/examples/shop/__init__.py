"""A shop that exists only here: orders, tools, a policy, customers with scripts, and what should have happened."""
