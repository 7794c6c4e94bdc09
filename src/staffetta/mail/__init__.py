"""What is decided: pure functions and frozen values. No I/O, no clock, no chance."""
