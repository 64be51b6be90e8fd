"""Text generation: each token is predicted from those before it."""
