"""The implementations besides the formula; each file offers `why_not(call)` and `run(call, query, key, value)`."""
