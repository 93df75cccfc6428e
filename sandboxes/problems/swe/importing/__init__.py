"""Problems of others: rows of public data sets, and folders. They go through the same gates as our own."""
