"""What happens, in order: one step, one module, one verb. A step decides nothing; `mail/` decides."""
