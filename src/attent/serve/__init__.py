"""Serving: attention looked at while it is made, over HTTP, from this machine for this machine."""
