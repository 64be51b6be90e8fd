"""Text generation: tokens that follow those before them."""
