"""Which tensor of the original is which tensor of the package, stated and checked in full."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from traingen.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMap:
    """Every name accounted for."""

    pairs: tuple[tuple[str, str], ...]  # (original, package)
    only_original: dict[str, str]  # name -> reason
    only_package: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMap:
    """Rules from names of the original to names of the package.

    Names are those of `named_parameters` and `named_buffers`; a tensor with several names goes by
    its first. Exact names go before patterns; patterns are regular expressions over the whole name,
    and two that match the same name are an error. Without any rule names are the same in both.

    Args:
        exact: original name -> package name.
        patterns: (regular expression, replacement with \\1 …), tried in order.
        only_original: regular expression -> reason, for what the package does not have.
        only_package: regular expression -> reason, for what the original does not have.
    """

    exact: Mapping[str, str] = field(default_factory=dict)
    patterns: tuple[tuple[str, str], ...] = ()
    only_original: Mapping[str, str] = field(default_factory=dict)
    only_package: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pattern in (*(p for p, _ in self.patterns), *self.only_original, *self.only_package):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(
                    f"name_map: {pattern!r} is no regular expression: {error}."
                ) from error
        for where in ("only_original", "only_package"):
            for pattern, reason in getattr(self, where).items():
                if not str(reason).strip():
                    raise ConfigError(f"name_map.{where}: {pattern!r} needs a reason.")

    def resolve(self, original: Iterable[str], package: Iterable[str]) -> ResolvedMap:
        """Map every name of the original and account for every name of the package.

        Raises:
            ConfigError: a name is left over, mapped twice, or mapped to nothing.
        """
        originals, packages = list(original), set(package)
        only_original = _excused(originals, self.only_original, "only_original")
        pairs = [(name, self._target(name)) for name in originals if name not in only_original]
        self._check_used([name for name, _ in pairs])
        _check_targets(pairs, packages)
        taken = {target for _, target in pairs}
        only_package = _excused(packages, self.only_package, "only_package")
        _refuse(
            sorted(packages - taken - set(only_package)),
            "the package has {names}, which no name of the original maps to",
            "map it, or list it under only_package with a reason",
        )
        _refuse(
            sorted(taken & set(only_package)),
            "{names} is listed under only_package and also mapped to",
            "remove one of the two",
        )
        return ResolvedMap(
            pairs=tuple(pairs), only_original=only_original, only_package=only_package
        )

    def _check_used(self, mapped: list[str]) -> None:
        """Refuse rules that map nothing: they say something that is not so."""
        _refuse(
            sorted(set(self.exact) - set(mapped)),
            "exact lists {names}, which the original does not have or only_original excuses",
            "remove it",
        )
        _refuse(
            [p for p, _ in self.patterns if not any(re.fullmatch(p, name) for name in mapped)],
            "pattern {names} matches no name of the original that is to be mapped",
            "remove it",
        )

    def _target(self, name: str) -> str:
        if name in self.exact:
            return self.exact[name]
        hits = [(p, r) for p, r in self.patterns if re.fullmatch(p, name)]
        if len(hits) > 1:
            raise ConfigError(
                f"name_map: {name!r} matches two patterns, {hits[0][0]!r} and {hits[1][0]!r}: "
                "make them exclusive."
            )
        if hits:
            return _expand(*hits[0], name)
        if not self.exact and not self.patterns:
            return name
        raise ConfigError(
            f"name_map: {name!r} of the original is not mapped: add a rule, or list it under "
            "only_original with a reason."
        )


def _expand(pattern: str, replacement: str, name: str) -> str:
    match = re.fullmatch(pattern, name)
    assert match is not None
    try:
        return match.expand(replacement)
    except (re.error, IndexError) as error:
        raise ConfigError(
            f"name_map: {replacement!r} is no replacement for {pattern!r}: {error}."
        ) from error


def _excused(names: Iterable[str], reasons: Mapping[str, str], where: str) -> dict[str, str]:
    """The names that `reasons` accounts for; a pattern that accounts for none is stale."""
    found: dict[str, str] = {}
    for pattern, reason in reasons.items():
        hits = [name for name in names if re.fullmatch(pattern, name)]
        if not hits:
            raise ConfigError(f"name_map.{where}: {pattern!r} matches no name: remove it.")
        found.update(dict.fromkeys(hits, str(reason)))
    return found


def _check_targets(pairs: list[tuple[str, str]], packages: set[str]) -> None:
    double = [t for t, count in Counter(t for _, t in pairs).items() if count > 1]
    if double:
        sources = [name for name, target in pairs if target == double[0]]
        raise ConfigError(
            f"name_map: {sources[0]!r} and {sources[1]!r} both map to {double[0]!r}: one package "
            "tensor can stand for one only."
        )
    lost = [(name, target) for name, target in pairs if target not in packages]
    if lost:
        raise ConfigError(
            f"name_map: {lost[0][0]!r} maps to {lost[0][1]!r}, which the package does not have "
            f"({len(lost)} such): correct the rule."
        )


def _refuse(names: list[str], problem: str, way_out: str) -> None:
    if names:
        shown = ", ".join(map(repr, names[:3])) + (
            f" and {len(names) - 3} more" if names[3:] else ""
        )
        raise ConfigError(f"name_map: {problem.format(names=shown)}: {way_out}.")
