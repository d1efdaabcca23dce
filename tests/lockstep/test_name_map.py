"""Which tensor is which: every name is accounted for, on both sides."""

import pytest

from traingen.errors import ConfigError
from traingen.lockstep.name_map import NameMap


def pairs(map_: NameMap, original: list[str], package: list[str]) -> dict[str, str]:
    return dict(map_.resolve(original, package).pairs)


def test_without_rules_names_are_the_same():
    resolved = NameMap().resolve(["a.weight", "b"], ["b", "a.weight"])
    assert resolved.pairs == (("a.weight", "a.weight"), ("b", "b"))
    assert resolved.only_original == resolved.only_package == {}


def test_without_rules_a_name_that_the_package_lacks_is_refused():
    with pytest.raises(ConfigError, match="'b' maps to 'b', which the package does not have"):
        NameMap().resolve(["a", "b"], ["a"])


def test_patterns_rewrite_whole_names():
    map_ = NameMap(patterns=((r"layers\.(\d)\.(.*)", r"blocks.\1.\2"),))
    assert pairs(map_, ["layers.0.weight"], ["blocks.0.weight"]) == {
        "layers.0.weight": "blocks.0.weight"
    }
    with pytest.raises(ConfigError, match=r"'my.layers.0.weight' of the original is not mapped"):
        map_.resolve(["my.layers.0.weight"], ["blocks.0.weight"])


def test_exact_names_go_before_patterns():
    map_ = NameMap(exact={"a.last": "head"}, patterns=((r"a\.(.*)", r"b.\1"),))
    assert pairs(map_, ["a.first", "a.last"], ["b.first", "head"]) == {
        "a.first": "b.first",
        "a.last": "head",
    }


def test_two_patterns_for_one_name_are_refused():
    map_ = NameMap(patterns=((r"a\..*", "x"), (r".*\.weight", "y")))
    with pytest.raises(ConfigError, match=r"'a.weight' matches two patterns"):
        map_.resolve(["a.weight"], ["x"])
    assert pairs(map_, ["a.bias", "b.weight"], ["x", "y"]) == {"a.bias": "x", "b.weight": "y"}


def test_with_any_rule_every_name_needs_one():
    map_ = NameMap(exact={"a": "b"})
    with pytest.raises(ConfigError, match="'c' of the original is not mapped"):
        map_.resolve(["a", "c"], ["b", "c"])


def test_two_names_for_one_tensor_are_refused():
    map_ = NameMap(patterns=((r".*\.weight", "w"),))
    with pytest.raises(ConfigError, match=r"'a.weight' and 'b.weight' both map to 'w'"):
        map_.resolve(["a.weight", "b.weight"], ["w"])


def test_a_target_that_does_not_exist_is_refused_and_counted():
    map_ = NameMap(patterns=((r"(.*)", r"net.\1"),))
    with pytest.raises(ConfigError, match=r"'a' maps to 'net.a', .* \(2 such\)"):
        map_.resolve(["a", "b", "c"], ["net.c"])


def test_names_that_only_the_package_has_are_refused_with_their_number():
    with pytest.raises(ConfigError, match="the package has 'b', 'c', 'd' and 2 more"):
        NameMap().resolve(["a"], list("abcdef"))


def test_excused_names_need_no_partner():
    map_ = NameMap(only_original={r"old\..*": "never called"}, only_package={"ema": "a copy"})
    resolved = map_.resolve(["a", "old.x", "old.y"], ["a", "ema"])
    assert resolved.pairs == (("a", "a"),)
    assert resolved.only_original == {"old.x": "never called", "old.y": "never called"}
    assert resolved.only_package == {"ema": "a copy"}


@pytest.mark.parametrize("side", ["only_original", "only_package"])
@pytest.mark.parametrize("reason", ["", "  "])
def test_an_excuse_needs_a_reason(side, reason):
    with pytest.raises(ConfigError, match=rf"{side}: 'a' needs a reason"):
        NameMap(**{side: {"a": reason}})


@pytest.mark.parametrize("side", ["only_original", "only_package"])
def test_an_excuse_that_excuses_nothing_is_refused(side):
    map_ = NameMap(**{side: {"gone": "was there once"}})
    with pytest.raises(ConfigError, match=rf"{side}: 'gone' matches no name"):
        map_.resolve(["a"], ["a"])


def test_a_name_is_not_excused_and_mapped_to():
    map_ = NameMap(only_package={"a": "an extra"})
    with pytest.raises(ConfigError, match="'a' is listed under only_package and also mapped to"):
        map_.resolve(["a"], ["a"])


@pytest.mark.parametrize(
    "rules",
    [
        {"patterns": (("a(", "b"),)},
        {"only_original": {"a(": "why"}},
        {"only_package": {"a(": "why"}},
    ],
    ids=str,
)
def test_what_is_no_regular_expression_is_refused(rules):
    with pytest.raises(ConfigError, match=r"'a\(' is no regular expression"):
        NameMap(**rules)


@pytest.mark.parametrize("replacement", [r"\2", r"\g<name>"])
def test_a_replacement_that_names_no_group_is_refused(replacement):
    map_ = NameMap(patterns=((r"(a)", replacement),))
    with pytest.raises(ConfigError, match="is no replacement for"):
        map_.resolve(["a"], ["a"])
    assert pairs(NameMap(patterns=((r"(a)", r"\1"),)), ["a"], ["a"]) == {"a": "a"}


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"exact": {"gone.weight": "a"}}, "exact lists 'gone.weight'"),
        ({"patterns": ((r"(.*)", r"\1"), (r"gone\.(.*)", r"\1"))}, r"pattern 'gone\\\\.\(\.\*\)'"),
    ],
)
def test_a_rule_that_maps_nothing_is_refused(rules, named):
    base = {"exact": {"a": "a"}} if "exact" in rules else {}
    merged = {"exact": base.get("exact", {}) | rules.get("exact", {})} | {
        key: value for key, value in rules.items() if key != "exact"
    }
    with pytest.raises(ConfigError, match=named):
        NameMap(**merged).resolve(["a"], ["a"])
