"""Searching for a translation, on any model that keeps the contract of `attent.models.encoder_decoder`."""
