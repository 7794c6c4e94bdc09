"""The command line: one small file per group of commands. It asks `app` for parts and prints; it decides nothing."""
