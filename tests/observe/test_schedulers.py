"""The book lists the loop's own schedulers and counts their ticks."""

from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from traingen.observe.schedulers import SchedulerBook
from traingen.records import SchedulerIdentity, SchedulerState


def make_optimizer() -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    optimizer._opt_called = True  # torch warns of a tick before the first step
    return optimizer


def make_step(size: int = 1) -> lr_scheduler.StepLR:
    return lr_scheduler.StepLR(make_optimizer(), size)


def make_book(*schedulers: Any) -> SchedulerBook:
    book = SchedulerBook()
    for scheduler in schedulers:
        book.add(scheduler)
    return book


def test_a_book_without_schedulers_has_no_states():
    assert SchedulerBook().states() is None
    assert SchedulerBook().identities() == []


def test_schedulers_are_numbered_and_named_in_the_order_in_which_they_came():
    book, first, second = SchedulerBook(), make_step(), make_step()
    book.add(second, interval="epoch", frequency=2, optimizer=1)
    book.add(first, optimizer=1)
    assert book.schedulers == [second, first]
    assert book.identities() == [
        SchedulerIdentity(
            id=number,
            class_path="torch.optim.lr_scheduler.StepLR",
            optimizer=1,
            interval=interval,
            frequency=frequency,
        )
        for number, interval, frequency in [(0, "epoch", 2), (1, None, None)]
    ]


def test_ticks_are_counted_per_scheduler():
    first, second = make_step(), make_step()
    book = make_book(first, second)
    for _ in range(2):
        second.step()
        book.tick(second)
    assert book.states() == [
        SchedulerState(id=0, last_epoch=0, ticks=0),
        SchedulerState(id=1, last_epoch=2, ticks=2),
    ]


def test_a_tick_that_nobody_reported_shows_in_the_schedulers_own_counter():
    scheduler = make_step()
    book = make_book(scheduler)
    scheduler.step()
    assert book.states() == [SchedulerState(id=0, last_epoch=1, ticks=0)]


def test_adding_one_again_keeps_its_number_and_count():
    first, second = make_step(), make_step()
    book = make_book(first, second)
    book.tick(first)
    book.add(first, interval="epoch")
    assert book.schedulers == [first, second]
    assert [state.ticks for state in book.states()] == [1, 0]


def test_a_tick_of_a_stranger_counts_for_nobody():
    book = make_book(make_step())
    book.tick(make_step())
    assert [state.ticks for state in book.states()] == [0]


def test_parts_of_a_composed_scheduler_are_not_listed():
    optimizer = make_optimizer()
    parts = [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)]
    whole = lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])
    other = lr_scheduler.StepLR(optimizer, 1)
    book = make_book(*parts, other)
    assert book.schedulers == [*parts, other]
    book.add(whole)
    book.tick(whole)
    assert book.schedulers == [other, whole]
    assert [(s.id, s.ticks) for s in book.states()] == [(0, 0), (1, 1)]
    assert [i.class_path.rpartition(".")[2] for i in book.identities()] == [
        "StepLR", "SequentialLR",
    ]  # fmt: skip


def test_a_scheduler_without_a_counter_has_none():
    class Own:
        pass

    assert make_book(Own()).states() == [SchedulerState(id=0, last_epoch=None, ticks=0)]


def test_a_plateau_scheduler_is_counted_by_its_own_counter_too():
    scheduler = lr_scheduler.ReduceLROnPlateau(make_optimizer())
    book = make_book(scheduler)
    scheduler.step(1.0)
    assert book.states() == [SchedulerState(id=0, last_epoch=1, ticks=0)]
