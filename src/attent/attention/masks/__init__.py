"""The masks, one per file: which keys a query may attend to. Masks are combined by & and |."""

from attent import registry
from attent.attention.base import And, Mask, Or
from attent.attention.masks.around import Around
from attent.attention.masks.causal import Causal
from attent.attention.masks.documents import Documents
from attent.attention.masks.excluded import Excluded
from attent.attention.masks.padding import Padding
from attent.attention.masks.per_head import PerHead
from attent.attention.masks.prefix import Prefix
from attent.attention.masks.selected import Selected
from attent.attention.masks.table import Table
from attent.attention.masks.window import Window

MASKS: dict[str, type[Mask]] = registry.parts(__name__)

__all__ = [
    "MASKS",
    "And",
    "Around",
    "Causal",
    "Documents",
    "Excluded",
    "Or",
    "Padding",
    "PerHead",
    "Prefix",
    "Selected",
    "Table",
    "Window",
]
