"""What the tuner takes, of times that are given."""

from __future__ import annotations

import pytest

from kernelwright.gallery import _tune

pytestmark = pytest.mark.tiny


def test_only_what_was_faster_in_every_sitting_goes_before_torch() -> None:
    sure = [{"rule": 9.0, "narrow": 8.0, "torch": 8.1}, {"rule": 9.0, "narrow": 8.2, "torch": 8.3}]
    assert _tune.choice(sure, rule="rule") == ("narrow", {"rule": 9.0, "narrow": 8.1, "torch": pytest.approx(8.2)})
    unsure = [{"rule": 9.0, "narrow": 7.0, "torch": 8.1}, {"rule": 9.0, "narrow": 8.4, "torch": 8.3}]
    assert _tune.choice(unsure, rule="rule")[0] == "torch"
    assert _tune.choice([{"torch": 8.0}], rule="rule")[0] == "torch"


def test_the_middle_of_samples_that_alternate_lies_between_both_levels() -> None:
    assert _tune._clock.middle([8.0, 9.0, 8.2, 9.2, 7.9, 9.1]) == pytest.approx((8.0 + 9.1) / 2)
    assert _tune._clock.middle([8.0]) == 8.0


def test_the_rules_plan_is_kept_within_a_hundredth_and_a_second_kernel_must_be_worth_two() -> None:
    assert _tune.choice([{"rule": 10.09, "walk": 10.0}], rule="rule")[0] == "rule"
    assert _tune.choice([{"rule": 10.11, "walk": 10.0}], rule="rule")[0] == "walk"

    def second(name: str) -> bool:
        return name == "split"

    assert _tune.choice([{"one": 10.1, "split": 10.0}], rule="one", second=second)[0] == "one"
    assert _tune.choice([{"one": 10.3, "split": 10.0}], rule="one", second=second)[0] == "split"


def test_a_wrong_plan_is_left_out_and_the_row_holds_all_that_were_right(monkeypatch: pytest.MonkeyPatch) -> None:
    us = {"rule": 5.0, "wide": 4.0, "torch": 6.0, "wrong": 1.0}
    monkeypatch.setattr(_tune._clock, "device_us", lambda calls, *, rounds: {name: us[name] for name in calls})
    made = []

    def make() -> _tune.Bench:
        made.append(1)
        calls = {name: (lambda name=name: name) for name in us}
        return _tune.Bench("matvec", (4, False, 1, 2), calls, lambda y: 1.0 if y == "wrong" else 0.0, 0.5, "rule")

    heard: list[str] = []
    kernel, row = _tune.fastest(make, tell=heard.append)
    assert (kernel, row["at"], row["recipe"], row["rule"]) == ("matvec", [4, False, 1, 2], "wide", "rule")
    assert row["us"] == {"rule": 5.0, "wide": 4.0, "torch": 6.0} and len(made) == _tune.SITTINGS
    assert heard == ["matvec (4, False, 1, 2): wrong is not right (error 1.0e+00) and is left out"]
