"""Whether a function may be called once more without anybody noticing."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import math
import types
from collections.abc import Callable
from typing import Any

from traingen.cadence.horizons import closure_of

_BUILTINS = {"abs", "bool", "float", "int", "len", "max", "min", "pow", "range", "round", "sum"}
_WRITES = {
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "STORE_ATTR", "DELETE_ATTR",
    "STORE_SUBSCR", "DELETE_SUBSCR", "IMPORT_NAME",
}  # fmt: skip


def is_pure(function: Callable[..., Any]) -> bool:
    """Whether `function` provably does nothing but compute a number from numbers.

    It may use arithmetic, numbers it closes over or finds in its module, the functions of `math`,
    a few builtins, and other functions of this kind.
    """
    return _is_pure(function, seen=set())


def _is_pure(value: object, *, seen: set[int]) -> bool:
    if id(value) in seen:
        return True
    seen.add(id(value))
    if isinstance(value, functools.partial):
        given = [value.func, *value.args, *value.keywords.values()]
        return all(_is_pure(one, seen=seen) for one in given)
    if value is None or type(value) in (bool, int, float, str):  # a subclass may compute anything
        return True
    if isinstance(value, tuple):
        return all(_is_pure(one, seen=seen) for one in value)
    if isinstance(value, types.BuiltinFunctionType | type):
        return _is_known(value)
    if value is math:
        return True
    return isinstance(value, types.FunctionType) and _is_pure_function(value, seen=seen)


def _is_known(value: object) -> bool:
    known = [getattr(builtins, name) for name in _BUILTINS]
    known += [function for name, function in vars(math).items() if not name.startswith("_")]
    return any(value is one for one in known)


def _is_pure_function(function: types.FunctionType, *, seen: set[int]) -> bool:
    code = function.__code__
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    if any(isinstance(constant, types.CodeType) for constant in code.co_consts):
        return False  # a function within: not looked into
    if any(instruction.opname in _WRITES for instruction in dis.get_instructions(code)):
        return False
    used = [*closure_of(function).values(), *(function.__defaults__ or ())]
    used += (function.__kwdefaults__ or {}).values()
    for name in code.co_names:
        if name in function.__globals__:
            used.append(function.__globals__[name])
        elif hasattr(builtins, name):
            used.append(getattr(builtins, name))
        elif name not in vars(math):
            return False  # an attribute of something unknown
    return all(_is_pure(one, seen=seen) for one in used)
