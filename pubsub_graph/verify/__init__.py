"""Checks of finished plans against the definitions; shares no code with the planners."""

from pubsub_graph.verify.assignment import verify_assignment
from pubsub_graph.verify.report import CheckResult, VerificationReport
from pubsub_graph.verify.topics import verify_topics

__all__ = ["CheckResult", "VerificationReport", "verify_assignment", "verify_topics"]
