"""Errors of a database that trying again does not help: what is wrong, and what to do, by the database's own code."""

from __future__ import annotations

from typing import Final

NO_PATH: Final = "unusable_path"
"""The code of a SQLite file that cannot be opened because of its path: SQLite's own says too many things."""

_DAMAGED: Final = "The file is no SQLite database, or is damaged: check its path, or restore it."
_READ_ONLY: Final = "The database cannot be written to: check the rights of file and folder, and mode= of a URI."
_PATH: Final = "The database file cannot be opened: check that its folder exists, and the rights of both."
_LOGIN: Final = "The database refuses the login: check user, password, and from where this account may connect."
_NO_DATABASE: Final = "The server has no database of this name: check the name, or create the database."
_RIGHTS: Final = "The account may not do this: grant it rights on the database and its tables."

_REMEDIES: Final = {
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_PERM": _READ_ONLY,
    NO_PATH: _PATH,
    "28000": _LOGIN,  # invalid_authorization_specification
    "28P01": _LOGIN,  # invalid_password
    "3D000": _NO_DATABASE,  # invalid_catalog_name
    "42501": _RIGHTS,  # insufficient_privilege
    "1045": _LOGIN,  # ER_ACCESS_DENIED_ERROR
    "1130": _LOGIN,  # ER_HOST_NOT_PRIVILEGED
    "1698": _LOGIN,  # ER_ACCESS_DENIED_NO_PASSWORD_ERROR
    "1044": _RIGHTS,  # ER_DBACCESS_DENIED_ERROR
    "1142": _RIGHTS,  # ER_TABLEACCESS_DENIED_ERROR
    "1143": _RIGHTS,  # ER_COLUMNACCESS_DENIED_ERROR
    "1049": _NO_DATABASE,  # ER_BAD_DB_ERROR
}


def remedy_of(code: str | None) -> str | None:
    """What to do about an error of this code; None where trying again may help, or nothing is known."""
    if code is None:
        return None
    # An extended code of SQLite goes on where the primary one ends.
    return _REMEDIES.get(code) or _REMEDIES.get("_".join(code.split("_")[:2]))
