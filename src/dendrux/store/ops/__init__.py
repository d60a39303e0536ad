"""One file per noun: plain functions over a transaction. None opens, commits, retries or names a database."""
