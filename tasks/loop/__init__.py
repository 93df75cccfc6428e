"""The loop of collecting and training over a bounded age of what is trained on. Plain asyncio: knows no engine and no lake."""
