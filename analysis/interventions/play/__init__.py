"""Interventions: agents whose hidden states are edited while they play, beside agents who are left alone."""
