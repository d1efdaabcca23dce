"""Sample records for all tests of the recording layer."""

from traingen.records import (
    DIGEST_ALGORITHM,
    FORMAT,
    BatchFacts,
    EndRecord,
    EventRecord,
    OptimizerIdentity,
    Record,
    RunRecord,
    SchedulerIdentity,
    SchedulerState,
    UpdateRecord,
)


def make_run(**changes: object) -> RunRecord:
    fields: dict[str, object] = {
        "format": FORMAT,
        "run_id": "0123456789abcdef0123456789abcdef",
        "attempt": 1,
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
        "loader": {"num_workers": 0, "sampler": "RandomSampler", "seed": None},
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
        "micro_batches": 1,
        "loss": 2.3025 / update,
        "loss_terms": {"cross_entropy": 2.3, "sparsity": 0.0025},
        "objective": 2.3025 / update,
        "divisor": 1,
        "grad_norm": 1.93,
        "grad_norm_source": "measured",
        "grad_norm_clipped": 1.0,
        "clipped": True,
        "lr": [0.001],
        "hyper_parameters": [{"betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0}],
        "scheduler": [SchedulerState(id=0, last_epoch=update - 1, ticks=update - 1)],
        "sampler": None,
        "data_sampler": {"position": update},
        "ema": {"decay": 0.999, "updates": update},
        "amp_scale": 65536.0,
        "rng": {"python": "aa", "torch": "bb"},
        "rng_forward": {"torch": "bb"},
        "rng_after": {"torch": "cc"},
        "batch": BatchFacts(digest="d1", ids=[3, "sämple-4"]),
    }
    return UpdateRecord(**(fields | changes))  # type: ignore[arg-type]


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


def golden_records() -> list[Record]:
    """A run line, three updates, one event, an end: non-finite numbers, text, nulls included."""
    return [
        make_run(),
        make_update(1, user={"probe": {"hidden_norm": 0.5}}),
        make_update(2, loss=float("nan"), grad_norm=float("inf"), loss_terms=None, batch=None),
        make_event(),
        make_update(3, amp_scale=None, scheduler=None, user={"note": "größer ✓"}),
        make_end(),
    ]
