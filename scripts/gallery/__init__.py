"""The gallery of the documentation: each picture from a run, each number in its caption from the same run."""
