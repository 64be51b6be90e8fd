"""What attent is measured beside: plain PyTorch, as tutorials have it."""
