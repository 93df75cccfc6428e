"""The lake: record types, tables, the only writer, queries."""
