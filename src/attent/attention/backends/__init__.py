"""The implementations other than the formula; each provides `unsupported(call)` and `run(call, query, key, value)`."""
