"""Look-up in a database and regression: attention without a model."""
