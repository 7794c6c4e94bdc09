"""The command line: a small file a group of commands. It asks `app` for parts and prints; it decides nothing."""
