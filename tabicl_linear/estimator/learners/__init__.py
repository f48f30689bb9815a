"""Learners, which read labelled rows and predict others: their protocol and all of its kinds."""
