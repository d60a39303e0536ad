"""dendrux: durable state of agent runs, with correctness that is demonstrated."""

__version__ = "0.6.0"
