"""One file per API dialect: parse and validate, then write the answer. Nothing else knows a dialect."""
