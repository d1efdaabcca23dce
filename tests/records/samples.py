"""Sample records for all tests of the recording layer."""

from traingen.records import (
    DIGEST_ALGORITHM,
    FORMAT,
    BatchFacts,
    ClosureFacts,
    EndRecord,
    EventRecord,
    OptimizerIdentity,
    Record,
    ResumeFacts,
    RunRecord,
    SchedulerIdentity,
    SchedulerState,
    ShardFacts,
    UpdateRecord,
)


def id_of(attempt: int) -> str:
    """The id that the samples give to an attempt of this number."""
    return f"{attempt:032x}"


def make_resumed(*updates: int, attempt: int | None = 1, **changes: object) -> ResumeFacts:
    fields: dict[str, object] = {
        "attempt": attempt,
        "attempt_id": None if attempt is None else id_of(attempt),
        "updates": list(updates),
        "global_step": sum(updates),
        "epoch": 0,
        "batches": None,
        "checkpoint": "checkpoints/last.ckpt",
    }
    return ResumeFacts(**(fields | changes))  # type: ignore[arg-type]


def make_run(*, attempt: int = 1, **changes: object) -> RunRecord:
    fields: dict[str, object] = {
        "format": FORMAT,
        "run_id": "0123456789abcdef0123456789abcdef",
        "attempt": attempt,
        "attempt_id": id_of(attempt),
        "resumed": None,
        "system": "package",
        "argv": ["traingen", "fit", "--config", "tabnet.yaml"],
        "config": {"model": {"width": 8, "dropout": 0.0}, "trainer": {"max_steps": 3}},
        "git": {"commit": "c0ffee", "diff": None},
        "versions": {"lightning": "2.6.6", "torch": "2.13.0"},
        "devices": ["cpu"],
        "seed": 7,
        "seed_source": "seed_everything",
        "optimizers": [
            OptimizerIdentity(index=0, class_path="torch.optim.Adam", groups=1, parameters=42)
        ],
        "schedulers": [
            SchedulerIdentity(
                id=0,
                class_path="torch.optim.lr_scheduler.StepLR",
                optimizer=0,
                interval="step",
                frequency=1,
            )
        ],
        "clipping": {"value": 1.0, "algorithm": "norm"},
        "accumulation": 1,
        "precision": "32-true",
        "world_size": 1,
        "rank": 0,
        "callbacks": ["traingen.callbacks.StepRecorder"],
        "loader": {
            "num_workers": 0,
            "batch_size": 4,
            "drop_last": False,
            "sampler": "torch.utils.data.RandomSampler",
            "sampler_seed": None,
            "batches": 5,
        },
        "training_path": {"package/model.py": "ab12"},
        "digest_algorithm": DIGEST_ALGORITHM,
        "observes": ["loss", "objective", "grad_norm", "lr"],
    }
    return RunRecord(**(fields | changes))  # type: ignore[arg-type]


def make_update(update: int = 1, **changes: object) -> UpdateRecord:
    fields: dict[str, object] = {
        "update": update,
        "optimizer": 0,
        "global_step": update,
        "epoch": 0,
        "batch_idx": update - 1,
        "total_batch_idx": update - 1,
        "batches_that_stepped": update - 1,
        "micro_batches": 1,
        "loss": 2.3025 / update,
        "micro_losses": [2.3025 / update],
        "loss_terms": {"cross_entropy": 2.3, "sparsity": 0.0025},
        "objective": 2.3025 / update,
        "divisor": 1,
        "closure": None,
        "grad_norm": 1.93,
        "grad_norm_source": "measured",
        "grad_norm_clipped": 1.0,
        "clipped": True,
        "clip_coefficient": 1.0 / 1.93,
        "shard": None,
        "lr": [0.001],
        "hyper_parameters": [{"betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0}],
        "scheduler": [SchedulerState(id=0, last_epoch=update - 1, ticks=update - 1)],
        "sampler": None,
        "data_sampler": {"class_path": "torch.utils.data.RandomSampler", "seed": None, "epoch": 0},
        "ema": {"class_path": "Ema", "decay": 0.999, "updates": update - 1, "distance": 0.5},
        "amp_scale": 65536.0,
        "amp_growth": update - 1,
        "rng": {"python": "aa", "torch": "bb"},
        "rng_forward": {"torch": "bb"},
        "rng_after": {"torch": "cc"},
        "batch": BatchFacts(digest="d1", ids=[3, "sämple-4"]),
        "parameters": "e1",
        "layer_norms": {"weight": 1.9, "bias": 0.3},
        "update_ratios": {"weight": 0.001, "bias": 0.01},
        "moment_norms": {"exp_avg": 0.19, "exp_avg_sq": 0.003},
    }
    return UpdateRecord(**(fields | changes))  # type: ignore[arg-type]


def make_closure(**changes: object) -> ClosureFacts:
    fields: dict[str, object] = {
        "evaluations": 4,
        "first_objective": 2.5,
        "last_objective": 2.25,
    }
    return ClosureFacts(**(fields | changes))  # type: ignore[arg-type]


def make_shard(**changes: object) -> ShardFacts:
    fields: dict[str, object] = {"grad_norm_squared": 4.0, "grad_norm_clipped_squared": 1.0}
    return ShardFacts(**(fields | changes))  # type: ignore[arg-type]


def make_event(**changes: object) -> EventRecord:
    fields: dict[str, object] = {
        "event": "validation",
        "update": 2,
        "details": {"batches": 4, "reason": "val_check_interval"},
    }
    return EventRecord(**(fields | changes))  # type: ignore[arg-type]


def make_end(**changes: object) -> EndRecord:
    fields: dict[str, object] = {
        "reason": "finished",
        "updates": 3,
        "scheduler": [SchedulerState(id=0, last_epoch=3, ticks=3)],
        "rng": {"torch": "dd"},
        "message": None,
    }
    return EndRecord(**(fields | changes))  # type: ignore[arg-type]


def full_records() -> list[Record]:
    """One line of each kind in which every field is there: nothing is null, nothing is empty."""
    return [
        make_run(
            attempt=2,
            resumed=make_resumed(3),
            git={"commit": "c0ffee", "diff": "ab"},
            user={"probe": 1},
        ),
        make_update(
            4,
            closure=make_closure(),
            shard=make_shard(),
            sampler={"branch": "uniform"},
            user={"probe": 1},
        ),
        make_event(user={"probe": 1}),
        make_end(message="done", user={"probe": 1}),
    ]


def golden_records() -> list[Record]:
    """A run line, three updates, one event, an end: non-finite numbers, text, nulls included."""
    return [
        make_run(),
        make_update(1, user={"probe": {"hidden_norm": 0.5}}, closure=make_closure()),
        make_update(2, loss=float("nan"), grad_norm=float("inf"), loss_terms=None, batch=None),
        make_event(),
        make_update(
            3, amp_scale=None, scheduler=None, shard=make_shard(), user={"note": "größer ✓"}
        ),
        make_end(),
    ]


def resumed_records() -> list[list[Record]]:
    """Three attempts of a run, two optimizers: the second does updates over, the third lost some.

    The first was killed, the second raised, the third was fitted twice.
    """
    skip = {"optimizer": 0, "reason": "scaler", "amp_scale": 4.0, "amp_scale_after": 2.0}
    return [
        [
            make_run(),
            *both(1),
            make_event(event="checkpoint", update=2, details={"global_step": 2}),
            make_event(event="skipped_step", update=2, details=skip | {"global_step": 3}),
            *both(2),
            make_event(update=4),
            make_update(3, loss=9.0),
        ],
        [
            make_run(attempt=2, resumed=make_resumed(1, 1)),
            *both(2),
            make_end(reason="exception", updates=4, message="ValueError()"),
        ],
        [
            make_run(attempt=3, resumed=make_resumed(3, 4, attempt=2)),
            make_update(4),
            make_end(updates=8),
            make_event(event="segment", update=8, details={"fit": 2}),
            make_update(5, optimizer=1),
            make_end(updates=9),
        ],
    ]


def both(update: int) -> list[Record]:
    """`update` of optimizer 0, then of optimizer 1."""
    return [make_update(update), make_update(update, optimizer=1)]
