"""Text with markup: what is to be translated is taken out, and tags are put back.

They go around the words that attention aligns with those they were around.
"""
