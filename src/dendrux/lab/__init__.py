"""The race lab: controlled interleavings at the statements of a real database."""
