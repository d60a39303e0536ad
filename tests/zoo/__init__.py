"""The zoo: stores broken on purpose, each with the contract that must catch it."""
