"""Search over documents of any length: corpora, their index, the tools that page through them, questions that join them."""
