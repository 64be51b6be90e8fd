"""The scores v·tanh(q + k) of every pair and their gradients: reference, compiled library and Triton."""
