"""The one way kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``numba.njit`` with a cache on disk where the code has a home, without one where it was shipped in an archive."""
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no place for a cache beside the file
        return cast(Function, numba.njit(nogil=True)(function))
