"""Commands: parse arguments, read tables, call one function, write tables."""
