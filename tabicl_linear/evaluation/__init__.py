"""Real benchmarks: tables, the paper's protocol, baselines, and results that a run leaves."""
