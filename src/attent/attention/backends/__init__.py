"""The implementations besides the formula; each file offers `unsupported(call)` and `run(call, query, key, value)`."""
