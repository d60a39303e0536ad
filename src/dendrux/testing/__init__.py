"""Tools for testing stores: a driver for programs of the model, fault injection, and the certification kit."""
