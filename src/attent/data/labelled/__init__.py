"""Examples with a label each: texts, pictures, or sequences of vectors."""
