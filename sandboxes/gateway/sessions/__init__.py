"""What is recorded: sessions, calls, keys, budgets, rewards, and the journal that keeps them."""
