"""Real benchmarks: tables, the paper's protocol, baselines, and the results of a run."""
