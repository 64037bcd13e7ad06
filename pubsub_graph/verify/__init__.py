"""Checks of finished plans against the definitions; shares no code with the planners."""

from pubsub_graph.verify.assignment import CheckResult, VerificationReport, verify_assignment

__all__ = ["CheckResult", "VerificationReport", "verify_assignment"]
