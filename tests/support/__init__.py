"""What several tests share: oracles by brute force, set-ups, subprocesses."""
