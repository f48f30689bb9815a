"""The file of a fitted classifier: records with tags, and checks."""
