"""Effects that make drawn tables look like real ones, applied on top of any prior."""

from tabicl_linear.priors.effects.prior import WithTableEffects

__all__ = ["WithTableEffects"]
