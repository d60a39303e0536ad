"""The tables as they were, or will be, after a revision: written out, never imported from the live models."""
