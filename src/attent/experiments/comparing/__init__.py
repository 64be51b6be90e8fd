"""Models beside each other: trained on the same data, with the same budget and seeds, and judged on the same sentences."""
