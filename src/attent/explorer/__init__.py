"""`attent explore`: a server of this machine for pages of attention."""
