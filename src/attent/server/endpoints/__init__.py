"""Endpoints, a file for each interface: parameters in, JSON out."""
