"""The version, in a separate file, so that packaging can read it without importing anything."""

__version__ = "0.2.0"
