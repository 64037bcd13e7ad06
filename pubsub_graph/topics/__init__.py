"""Which nodes link up so that every topic is connected at a low degree."""

from pubsub_graph.topics.improve import improve
from pubsub_graph.topics.measures import contributions, degrees
from pubsub_graph.topics.paper import DivideParams, RingParams, dcb_m, dcbr_m, gm_m, naive, ring
from pubsub_graph.topics.plan import TopicsPlan, lower_bound
from pubsub_graph.topics.problem import TopicsProblem, make_topics_problem
from pubsub_graph.topics.repair import RepairParams, repair
from pubsub_graph.topics.sharded import ShardedParams, sharded

__all__ = [
    "DivideParams", "RepairParams", "RingParams", "ShardedParams", "TopicsPlan", "TopicsProblem",
    "contributions", "dcb_m", "dcbr_m", "degrees", "gm_m", "improve", "lower_bound", "make_topics_problem", "naive", "repair", "ring", "sharded",
]  # fmt: skip
