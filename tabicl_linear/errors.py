"""Errors that users see. All are `ValueError`s and say what is wrong, the value, and the remedy."""


class ConfigError(ValueError):
    """A configuration that cannot be built, or parts that do not fit together."""


class UnsupportedReadout(ConfigError):
    """A readout that the mixer's update rule does not support."""


class CheckpointError(ValueError):
    """A checkpoint or export that is corrupt, foreign, or does not fit the options given."""


class DataError(ValueError):
    """A table or synthetic task that cannot be used as requested."""


class NotInModel(DataError):
    """A model was asked for something that its kind does not have, such as a matrix state."""
