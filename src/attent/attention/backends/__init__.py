"""The implementations other than the reference formula; each file provides `unsupported(call)` and `run(call, query, key, value)`."""
