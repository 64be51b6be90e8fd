"""`attent explore`: a local server for interactive pages that show attention."""

from attent.requirements import check_extra

check_extra("explore")
