"""The command line: a small file a group of commands. It asks `app` for parts, prints, and decides nothing."""
