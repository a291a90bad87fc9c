"""Inputs are never drawn from the stream that the weights were drawn from."""

import pytest

from kernelwright.worker.plan import trial_seed

pytestmark = pytest.mark.tiny


def test_no_trial_starts_from_the_weights_seed_and_no_two_trials_agree() -> None:
    for seed in (0, 1, 42, 2**32 - 1):
        trials = [trial_seed(seed, index) for index in range(64)]
        assert len({seed, *trials}) == 65
        assert all(0 <= trial < 2**32 for trial in trials)


def test_trial_seeds_stay_the_same_from_version_to_version() -> None:
    assert [trial_seed(0, 0), trial_seed(42, 1)] == [2065550767, 2993090819]
