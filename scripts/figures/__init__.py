"""What the live figures of the documentation show that is not computed in the page: weights and recorded attention."""
