"""Every form of configure_optimizers is read as Lightning reads it, with what it loses."""

from collections.abc import Callable, Mapping
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.optim import lr_scheduler as schedules

from tests.callbacks.small import Small, make_loader, make_trainer
from traingen.cadence import kinds
from traingen.cadence.entries import Entry, check_entry, iter_entries
from traingen.cadence.schedule import Schedule

FIX = "Write it in the scheduler's dictionary."


class Parts:
    """Two optimizers and the schedulers of the first, to build what is returned from."""

    def __init__(self) -> None:
        self.first, self.second = (
            torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1) for _ in range(2)
        )
        self.step = schedules.StepLR(self.first, 3)
        self.cosine = schedules.CosineAnnealingLR(self.first, 30)
        self.other = schedules.StepLR(self.second, 5)
        self.plateau = schedules.ReduceLROnPlateau(self.first)


Make = Callable[[Parts], Any]
ONE: list[Make] = [
    lambda p: p.first,
    lambda p: [p.first],
    lambda p: (p.first,),
    lambda p: {"optimizer": p.first},
    lambda p: {"optimizer": p.first, "lr_scheduler": p.step},
    lambda p: {"optimizer": p.first, "lr_scheduler": {"scheduler": p.step, "interval": "step"}},
    lambda p: {"optimizer": p.first, "lr_scheduler": p.plateau, "monitor": "loss"},
    lambda p: {"optimizer": p.first, "lr_scheduler": {"scheduler": p.plateau, "monitor": "loss"}},
    lambda p: [{"optimizer": p.first, "lr_scheduler": p.step}],
    lambda p: ({"optimizer": p.first, "lr_scheduler": {"scheduler": p.step}},),
    lambda p: ([p.first], []),
    lambda p: [[p.first], []],
    lambda p: ([p.first], [p.step]),
    lambda p: [[p.first], [p.step]],
    lambda p: ([p.first], p.step),
    lambda p: [[p.first], {"scheduler": p.cosine, "frequency": 2}],
    lambda p: ([p.first], [p.cosine, p.step]),
    lambda p: [[p.first], [{"scheduler": p.cosine}, p.step, {"scheduler": p.step, "name": "x"}]],
]
SEVERAL: list[Make] = [
    lambda p: [p.first, p.second],
    lambda p: (p.first, p.second),
    lambda p: ([p.first, p.second], [p.other, p.step]),
    lambda p: [[p.first, p.second], {"scheduler": p.other}],
    lambda p: [
        {"optimizer": p.first, "lr_scheduler": p.step},
        {"optimizer": p.second, "lr_scheduler": {"scheduler": p.other, "interval": "step"}},
    ],
    lambda p: ({"optimizer": p.first}, {"optimizer": p.second, "lr_scheduler": p.other}),
    lambda p: [{"optimizer": p.first, "lr_scheduler": p.cosine}, {"optimizer": p.second}],
    lambda p: ({"optimizer": p.first}, {"optimizer": p.second}),
]


class Given(Small):
    """Returns what it was given; trains nothing."""

    def __init__(self, returned: Any, *, automatic: bool) -> None:
        super().__init__()
        self.returned, self.automatic_optimization = returned, automatic

    def configure_optimizers(self) -> Any:
        return self.returned


def in_effect(returned: Any, *, automatic: bool) -> list[Any]:
    """What Lightning itself makes of it."""
    trainer = make_trainer([], max_epochs=-1, max_steps=0)
    model: pl.LightningModule = Given(returned, automatic=automatic)
    trainer.fit(model, make_loader())
    return list(trainer.lr_scheduler_configs)


@pytest.mark.parametrize(
    ("make", "automatic"),
    [*((make, True) for make in ONE), *((make, False) for make in [*ONE[:6], *SEVERAL])],
)
def test_the_schedulers_are_lightnings_in_its_order(make, automatic):
    returned = make(Parts())
    entries = list(iter_entries(returned))
    configs = in_effect(returned, automatic=automatic)
    assert [entry.scheduler for entry in entries] == [config.scheduler for config in configs]
    for entry, config in zip(entries, configs, strict=True):
        for key, value in entry.given.items():
            assert getattr(config, key) == value
        assert entry.lost() == entry.beside == {}


def test_nothing_returned_has_no_scheduler():
    assert list(iter_entries(None)) == []


def test_a_dictionary_is_copied_before_lightning_writes_into_it():
    parts = Parts()
    config = {"scheduler": parts.step, "interval": "step"}
    (entry,) = iter_entries({"optimizer": parts.first, "lr_scheduler": config})
    config["reduce_on_plateau"] = False
    assert entry.given == {"scheduler": parts.step, "interval": "step"}


def test_reading_changes_nothing_that_was_returned():
    parts = Parts()
    returned = {"optimizer": parts.first, "lr_scheduler": {"scheduler": parts.step}, "interval": 1}
    list(iter_entries(returned))
    assert returned == {
        "optimizer": parts.first,
        "lr_scheduler": {"scheduler": parts.step},
        "interval": 1,
    }


# ---- keys that nothing reads --------------------------------------------------------------------


def read(inside: Mapping[str, Any] | None = None, /, **beside: Any) -> Entry:
    parts = Parts()
    scheduler = parts.step if inside is None else {"scheduler": parts.step, **inside}
    (entry,) = iter_entries({"optimizer": parts.first, "lr_scheduler": scheduler, **beside})
    return entry


def told(entry: Entry, **effective: Any) -> list[str]:
    facts = {"index": 1, "optimizer": 0, "interval": "epoch", "frequency": 1} | effective
    findings = check_entry(entry, Schedule(scheduler=entry.scheduler, **facts), write_step=FIX)
    assert all((one.id, one.severity) == (kinds.MISPLACED_KEY.id, "error") for one in findings)
    return [one.measured for one in findings]


@pytest.mark.parametrize("inside", [None, {}, {"name": "decay", "monitor": "loss"}])
def test_an_interval_beside_the_scheduler_is_told_with_what_is_in_effect(inside):
    assert told(read(inside, interval="step")) == [
        "StepLR (scheduler 1): interval 'step' is beside lr_scheduler and dropped; "
        "in effect is interval 'epoch'"
    ]


def test_both_keys_beside_the_scheduler_are_told():
    interval, frequency = told(read(interval="step", frequency=4))
    assert interval.startswith("StepLR (scheduler 1): interval 'step' is beside lr_scheduler")
    assert frequency.endswith("frequency 4 is beside lr_scheduler and dropped; in effect is fre"
                              "quency 1")  # fmt: skip


@pytest.mark.parametrize("monitor", ["loss", None])
def test_a_key_beside_that_lightning_reads_is_no_mistake(monitor):
    assert read(monitor=monitor).beside == {}
    assert told(read(monitor=monitor)) == []


@pytest.mark.parametrize("key", ["note", "scheduler_name", "lr", "warmup"])
def test_another_key_that_nothing_reads_has_nothing_to_do_with_pace(key):
    assert told(read(None, **{key: "step"})) == []
    assert told(read({key: "step"})) == []


@pytest.mark.parametrize(
    "key", ["Interval", "INTERVAL", "intervall", "intervals", "interval ", "inteval", "lr_interval"]
)
def test_a_misspelt_interval_is_told_as_it_was_spelt(key):
    assert told(read({key: "step"})) == [
        f"StepLR (scheduler 1): interval 'step' is spelt {key!r} and dropped; "
        "in effect is interval 'epoch'"
    ]


@pytest.mark.parametrize("key", ["Frequency", "frequencey", "frequncy", "freqency", "freq"])
def test_a_misspelt_frequency_is_told_as_it_was_spelt(key):
    assert told(read({key: 6})) == [
        f"StepLR (scheduler 1): frequency 6 is spelt {key!r} and dropped; in effect is frequency 1"
    ]


@pytest.mark.parametrize("key", ["Interval", "intervall"])
def test_a_key_both_misspelt_and_misplaced_is_told(key):
    assert len(told(read(None, **{key: "step"}))) == 1


def test_keys_of_other_types_are_passed_over():
    assert read({1: "step", None: 2}).lost() == {}  # type: ignore[dict-item]


# ---- no mistake ---------------------------------------------------------------------------------


def test_a_key_inside_too_is_the_one_that_counts():
    entry = read({"interval": "epoch"}, interval="step", frequency=9)
    assert entry.lost() == {"frequency": ("beside lr_scheduler", 9)}
    assert told(read({"interval": "epoch", "intervall": "step"})) == []


def test_a_lost_key_that_says_what_is_in_effect_anyway_is_harmless():
    assert told(read(interval="epoch", frequency=1)) == []
    assert told(read({"Interval": "epoch"})) == []
    assert len(told(read(interval="epoch"), interval="step")) == 1  # set by somebody afterwards


def test_a_right_configuration_has_lost_nothing():
    entry = read({"interval": "step", "frequency": 2, "name": "x", "strict": False})
    assert entry.lost() == {}
    assert told(entry, interval="step", frequency=2) == []


def test_of_two_optimizers_each_keeps_its_own_mistake():
    parts = Parts()
    first, second = iter_entries(
        [
            {"optimizer": parts.first, "lr_scheduler": {"scheduler": parts.step}},
            {"optimizer": parts.second, "lr_scheduler": parts.other, "interval": "step"},
        ]
    )
    assert first.lost() == {}
    assert second.lost() == {"interval": ("beside lr_scheduler", "step")}


@pytest.mark.parametrize(("lost", "fix"), [("step", FIX), ("steps", kinds.MISPLACED_KEY.fix)])
def test_the_way_out_is_that_of_the_run_where_updates_were_meant(lost, fix):
    entry = read(interval=lost)
    facts = {"index": 0, "optimizer": 0, "interval": "epoch", "frequency": 1}
    (finding,) = check_entry(entry, Schedule(scheduler=entry.scheduler, **facts), write_step=FIX)
    assert finding.fix == fix
