"""Settings into running parts: the only room that names concrete backends. It decides nothing.

`wiring` makes each part, `engine` opens them for a process that works, `running` lets it work until a signal,
`tools` opens what a command needs, `doctor` looks at all of it. Import the one you need: a command that loads
the web framework to count e-mails is a slow command.
"""
