"""Profiles: what each kernel of a candidate did, why it takes its time, and where it stands under the device's roofs.

Why: "slow" needs a line and a figure. The rule: counters are under the same names whoever counted (ncu on a GPU, the
emulated device elsewhere), and every reason carries the figures that it rests on.
"""

from __future__ import annotations

from kernelwright.profile.picture import picture
from kernelwright.profile.records import Profile
from kernelwright.profile.run import MOST_LAUNCHES, NotProfiled, ProfileOptions, profile

__all__ = ["MOST_LAUNCHES", "NotProfiled", "Profile", "ProfileOptions", "picture", "profile"]
