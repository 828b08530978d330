"""Access to cvxpy, which solves convex problems."""

from typing import Any


def cvxpy_module() -> Any:
    """Import cvxpy here, because most runs never need it. It has no usable types, hence Any."""
    import cvxpy

    return cvxpy
