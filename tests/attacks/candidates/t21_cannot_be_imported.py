"""Threat 21: raises at import; every case says so."""

EXPECT = {"verdict": "failed", "outcomes": ["raised"], "reason": "half a checkout"}

raise ImportError("half a checkout")
