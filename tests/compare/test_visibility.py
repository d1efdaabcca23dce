"""What a recorder cannot see is neither compared nor held against its recording."""

import pytest

from tests.reading.recordings import OBSERVES, seeing_run
from tests.records.samples import make_update
from traingen.compare.gates import Gates
from traingen.compare.records import COMPARED_FIELDS, compare_updates
from traingen.compare.visibility import explain_hidden, find_hidden, hide_unknown

ALL = [seeing_run()]


def seeing_all_but(*fields):
    return [seeing_run(observes=[name for name in OBSERVES if name not in fields])]


def test_recorders_that_see_everything_hide_nothing():
    assert find_hidden(ALL, ALL) == {}
    update = make_update(1)
    assert hide_unknown(update, update, {}) == (update, update)


def test_who_does_not_see_a_field_is_said():
    hidden = find_hidden(seeing_all_but("ema", "batch", "lr"), seeing_all_but("ema", "rng"))
    assert hidden == {"batch": "original", "ema": "neither", "lr": "original", "rng": "package"}
    assert explain_hidden(hidden) == [
        "batch, lr: the original's recorder does not see it",
        "ema: neither recorder sees it",
        "rng: the package's recorder does not see it",
    ]


def test_counters_of_the_loop_are_never_compared_and_so_never_hidden():
    assert find_hidden(ALL, seeing_all_but("global_step", "epoch", "micro_batches")) == {}


def test_every_attempt_must_have_seen_a_field():
    assert find_hidden([*ALL, *seeing_all_but("ema")], ALL) == {"ema": "original"}


def test_digests_of_other_algorithms_cannot_be_compared():
    other = [seeing_run(digest_algorithm="blake3")]
    hidden = find_hidden(ALL, other)
    assert set(hidden) == {"rng", "rng_forward", "rng_after", "batch", "parameters"}
    assert explain_hidden(hidden) == [
        "batch, parameters, rng, rng_after, rng_forward: made by different digest algorithms"
    ]


@pytest.mark.parametrize("field", sorted(COMPARED_FIELDS))
def test_a_hidden_field_makes_no_difference(field):
    mine = make_update(2)
    changed = make_update(2, **{field: [] if field in ("lr", "hyper_parameters") else None})
    hidden = find_hidden(ALL, seeing_all_but(field))
    differences = compare_updates(*hide_unknown(mine, changed, hidden), Gates()).differences
    assert differences == ()


def test_generators_that_one_alone_digests_are_left_out():
    mine = make_update(1, rng={"torch": "a", "python": "p"})
    theirs = make_update(1, rng={"torch": "b", "numpy": "n"})
    found = compare_updates(*hide_unknown(mine, theirs, {}), Gates()).differences
    assert [d.path for d in found] == ["rng.begin.torch"]
