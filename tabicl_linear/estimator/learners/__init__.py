"""Learners, which read labelled rows and predict others: their protocol and its implementations."""
