"""Which broker serves each subscriber, and with which filters."""

from pubsub_graph.assignment.balance import BalanceParams, balance
from pubsub_graph.assignment.candidates import candidate_join, candidate_table
from pubsub_graph.assignment.closest import ClosestParams, closest, closest_no_balance
from pubsub_graph.assignment.greedy import GreedyParams, gr, gr_no_latency, gr_star
from pubsub_graph.assignment.plan import AssignmentPlan
from pubsub_graph.assignment.problem import AssignmentProblem, Limits, broker_tree, make_problem
from pubsub_graph.assignment.slp import SlpParams, slp
from pubsub_graph.assignment.slp_paper import SlpPaperParams, slp_paper

__all__ = [
    "AssignmentPlan", "AssignmentProblem", "BalanceParams", "ClosestParams", "GreedyParams", "Limits", "SlpParams", "SlpPaperParams",
    "balance", "broker_tree", "candidate_join", "candidate_table", "closest", "closest_no_balance",
    "gr", "gr_no_latency", "gr_star", "make_problem", "slp", "slp_paper",
]  # fmt: skip
