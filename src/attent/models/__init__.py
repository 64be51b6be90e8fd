"""Models, built of attention and layers; `model` has their base classes, `settings` and `build` what makes them."""
