"""Attention as a database: look-up that is exact, nearest or soft."""
