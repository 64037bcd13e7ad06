"""The workloads of the papers, and real ones."""

from pubsub_graph.workloads.assignment import WORKLOADS, AssignmentWorkload, WorkloadParams, assignment_workload

__all__ = ["WORKLOADS", "AssignmentWorkload", "WorkloadParams", "assignment_workload"]
