"""Advice: which of several choices to make.

Inside: studies of spares and of maintenance (choices), and the evacuation of a domain.
Enters: a fork of a cluster. Leaves: a front of choices, and a sentence.
"""
