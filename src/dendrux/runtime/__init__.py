"""What an agent run needs of a store: the StateStore protocol and its values."""
