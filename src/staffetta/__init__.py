"""Staffetta: a delivery engine for the e-mail that an application must not lose."""
