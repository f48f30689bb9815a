"""What makes drawn tables look like collected ones, laid over any prior."""

from tabicl_linear.priors.effects.prior import WithTableEffects

__all__ = ["WithTableEffects"]
