"""What a run can be trained for, one task a file; `attent.config.recipe` follows any of them."""
