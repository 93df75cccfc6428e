"""What a run checks of itself: agreement with the engine, and its ledger of tokens."""
