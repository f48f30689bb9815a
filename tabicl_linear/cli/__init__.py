"""The command line: verbs, usage errors, run folders and resuming."""
