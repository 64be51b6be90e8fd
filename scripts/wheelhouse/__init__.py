"""The source distribution and the wheels: built with one compiler for all platforms, checked, and tried."""

# How the plugin of trials says it, and how a trial sees it.
NOT_CALLED = "functions not called:"
