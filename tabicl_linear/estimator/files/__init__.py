"""The file of a fitted classifier: writes and reads it, and checks it when it is read."""
