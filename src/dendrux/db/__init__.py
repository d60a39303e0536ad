"""The schema and the engines of the store."""
