"""The MLP prior of TabPFN v1 as the paper's authors use it."""

from tabicl_linear.priors.tabpfn_v1.prior import TabPFNv1Prior

__all__ = ["TabPFNv1Prior"]
