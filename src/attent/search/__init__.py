"""Search, of any model: one loop for beams and samples, with constraints; and scores of what was written."""
