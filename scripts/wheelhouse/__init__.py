"""The source distribution and the wheels: built with one compiler for all platforms, checked, and tried."""
