"""Schema revisions of the built-in stores, shipped with the package."""
