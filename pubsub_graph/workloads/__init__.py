"""The workloads of the papers, and real ones."""

from pubsub_graph.workloads.assignment import WORKLOADS, AssignmentWorkload, WorkloadParams, assignment_workload
from pubsub_graph.workloads.topics import TOPIC_WORKLOADS, TopicWorkload, TopicWorkloadParams, topics_workload

__all__ = [
    "TOPIC_WORKLOADS", "WORKLOADS", "AssignmentWorkload", "TopicWorkload", "TopicWorkloadParams", "WorkloadParams",
    "assignment_workload", "topics_workload",
]  # fmt: skip
