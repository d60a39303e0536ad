"""One file per database: its hooks and nothing else."""
