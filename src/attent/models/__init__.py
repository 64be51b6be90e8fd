"""Models, built of attention and layers; `model` has their base classes, `settings` and `build` what makes them."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
