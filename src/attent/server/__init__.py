"""The translation server: LibreTranslate's contract, answered in batches that requests share.

Nothing here knows the explorer.
"""
