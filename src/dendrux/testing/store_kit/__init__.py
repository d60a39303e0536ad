"""The certification kit: `pytest -p dendrux.testing.store_kit` runs it against the fixtures of a conftest.py.

Only being named with -p, the option and the setting switch it on; a conftest.py that lists this package in
pytest_plugins changes nothing.
"""

from _dendrux_pytest import pytest_addoption, pytest_configure

__all__ = ["pytest_addoption", "pytest_configure"]
