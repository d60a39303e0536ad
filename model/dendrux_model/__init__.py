"""The executable reference model of a dendrux store: what every operation means, as a pure step on a world."""
