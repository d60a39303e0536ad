"""Hypothesis machines: programs grown step by step from what the model enables."""
