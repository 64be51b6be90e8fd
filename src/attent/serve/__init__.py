"""Serving: attention explored in a browser over HTTP, on this machine for this machine."""
