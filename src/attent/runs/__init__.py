"""The run folder: everything that a trained model leaves behind, enough to use it without anything else."""
