"""Text with markup: what is to be translated is taken out, and tags are put back around the words that attention aligns theirs with."""
