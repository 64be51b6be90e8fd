"""The translation server: LibreTranslate's contract, answered in batches that requests share.

Nothing here knows the explorer.
"""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("serve")
