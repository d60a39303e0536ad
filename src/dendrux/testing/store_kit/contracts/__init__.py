"""The contracts, one module per noun; what several nouns share has a name of its own."""
