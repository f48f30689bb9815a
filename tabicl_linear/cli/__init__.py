"""What stands behind the command line: usage errors, run folders, resuming, small verbs."""
