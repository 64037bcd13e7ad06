"""The properties stated of the workloads of topics."""

from itertools import permutations

import numpy as np
import pytest

from udfs.kernels.topic_workload import DISTRIBUTIONS, Communities, LemmaEight, Popular, SparseBulk, marked, sample_topics

MODELS = [
    *[Popular(3, 2000, 120, distribution) for distribution in DISTRIBUTIONS],
    LemmaEight(9), SparseBulk(3, 2000, 120, 0.013, 60, 5.0), Communities(3, 2000, 120, 11, 20.0),
]  # fmt: skip
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: getattr(model, "distribution", type(model).__name__))


def pairs(model, ids):
    return list(zip(*(column.tolist() for column in model.rows(ids))))


@every_model
def test_rows_depend_on_their_id_alone_and_no_pair_comes_twice(model):
    ids = np.arange(model.nodes)
    whole = pairs(model, ids)
    assert len(set(whole)) == len(whole)
    assert {node for node, _ in whole} == set(ids.tolist()) and {topic for _, topic in whole} <= set(range(model.topics))
    shuffled = np.random.default_rng(1).permutation(ids)
    batched = [pair for part in np.array_split(shuffled, 17) for pair in pairs(model, part)]
    assert sorted(batched) == sorted(whole)
    assert [pair for pair in whole if pair[0] == 77] == pairs(model, np.array([77]))
    assert pairs(model, ids[:0]) == []


@pytest.mark.parametrize("model", [model for model in MODELS if hasattr(model, "seed")], ids=lambda model: type(model).__name__)
def test_another_seed_gives_other_interests(model):
    other = type(model)(**(vars_of(model) | {"seed": 4}))
    ids = np.arange(100)
    assert pairs(type(model)(**vars_of(model)), ids) == pairs(model, ids) != pairs(other, ids)


def vars_of(model):
    return {name: getattr(model, name) for name in model.__dataclass_fields__}


@pytest.mark.parametrize("nodes, count", [(5000, 1000), (4003, 801), (1000, 13), (10, 7), (10, 10), (10, 0), (1, 0)])
def test_exactly_the_stated_number_is_marked_and_evenly_spread(nodes, count):
    ids = np.arange(nodes)
    found = np.flatnonzero(marked(1, 1, ids, nodes, count))
    assert len(found) == count
    if count:
        length = nodes / count
        assert (np.floor(found - np.arange(count) * length) <= length).all() and (found >= np.floor(np.arange(count) * length)).all()


def test_a_fifth_are_bulk_subscribers_and_sizes_are_the_papers():
    model = Popular(1, 5000, 200, "zipf")
    size = np.bincount(model.rows(np.arange(5000))[0])
    bulk = size >= 80
    assert bulk.reshape(-1, 5).sum(axis=1).tolist() == [1] * 1000  # one in each run of five ...
    assert np.bincount(np.flatnonzero(bulk) % 5).min() > 150  # ... at any place of it
    assert set(size[bulk]) == set(range(80, 91)) and set(size[~bulk]) == set(range(10, 73))
    assert abs(size.mean() - 49.8) < 1.0


def test_sizes_scale_with_the_mean_and_stop_at_the_topics():
    ids = np.arange(5000)
    size = Popular(1, 5000, 1000, "uniform", 100.0).sizes(ids)
    assert size.min() == 20 and size.max() == 180 and abs(size.mean() - 99.6) < 2.0
    assert Popular(1, 5000, 1000, "uniform", 1.0).sizes(ids).min() == 1
    few = Popular(1, 5000, 30, "uniform")
    assert few.sizes(ids).max() == 30 and np.bincount(few.rows(ids)[0]).max() == 30


def test_draws_have_the_exact_law_of_sampling_without_replacement():
    weight, ids = np.array([8.0, 4.0, 2.0, 1.0, 1.0]), np.arange(40_000)
    expected: dict[tuple[int, ...], float] = {}
    for order in permutations(range(5), 3):
        left, chance = weight.sum(), 1.0
        for topic in order:
            chance, left = chance * weight[topic] / left, left - weight[topic]
        key = tuple(sorted(order))
        expected[key] = expected.get(key, 0.0) + chance
    _, topic = sample_topics(5, ids, np.full(len(ids), 3), np.log(weight))
    sets, counts = np.unique(topic.reshape(-1, 3), axis=0, return_counts=True)
    found = {tuple(row): count / len(ids) for row, count in zip(sets.tolist(), counts)}
    assert set(found) == set(expected)
    for key, chance in expected.items():
        assert abs(found[key] - chance) < 4.5 * np.sqrt(chance * (1 - chance) / len(ids)), key


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_topic_frequencies_are_those_of_a_plain_sampler(distribution):
    nodes, topics = 2500, 150
    rank = np.arange(1, topics + 1)
    weight = {"uniform": np.ones(topics), "zipf": rank**-2.0, "exponential": np.exp(-0.1 * rank)}[distribution]
    model, rng = Popular(2, nodes, topics, distribution), np.random.default_rng(7)
    ids = np.arange(nodes)
    assert np.allclose(np.exp(model.log_weight) / weight, 1)
    plain = np.zeros(topics)
    for size in model.sizes(ids):
        plain[rng.choice(topics, size, replace=False, p=weight / weight.sum())] += 1
    found = np.bincount(model.rows(ids)[1], minlength=topics)
    share = (plain + found) / (2 * nodes)
    z = (plain - found) / np.sqrt(np.maximum(2 * nodes * share * (1 - share), 1))
    counted = (share * nodes > 5) & ((1 - share) * nodes > 5)
    assert np.abs(z).max() < 4.5 and counted.sum() > 80 and (z[counted] ** 2).mean() < 1.25


def test_topics_left_out_as_out_of_reach_change_nothing():
    model, ids = Popular(2, 200, 3000, "exponential"), np.arange(200)
    node, topic = sample_topics(2, ids, model.sizes(ids), model.log_weight)
    assert topic.max() < 400
    assert pairs(model, ids) == list(zip(node.tolist(), topic.tolist()))


def test_lemma_eight_is_the_papers_instance():
    wanted = {(1 << i) - 1 + j - 1: set(range((j - 1) * 8 // 2**i, j * 8 // 2**i)) for i in range(4) for j in range(1, 2**i + 1)}
    model = LemmaEight(3)
    assert model.nodes == 15 and model.topics == 8
    assert pairs(model, np.arange(15)) == [(node, topic) for node, topics in wanted.items() for topic in sorted(topics)]
    assert wanted[0] == set(range(8)) and wanted[2] == {4, 5, 6, 7} and wanted[14] == {7}
    assert pairs(LemmaEight(0), np.array([0])) == [(0, 0)]
    last = LemmaEight(30)
    assert pairs(last, np.array([last.nodes - 1])) == [(last.nodes - 1, last.topics - 1)]


def test_sparse_bulk_counts_and_sizes():
    size = np.bincount(SparseBulk(1, 3333, 1000, 0.01, 500, 5.0).rows(np.arange(3333))[0])
    assert (size == 500).sum() == 33 and set(size[size < 500]) == set(range(2, 9))
    assert abs(size[size < 500].mean() - 5.0) < 0.15
    assert (SparseBulk(1, 100, 50, 1.0, 500, 5.0).sizes(np.arange(100)) == 50).all()


def test_communities_have_skewed_sizes_overlap_and_hold_most_interests():
    model, ids = Communities(1, 4000, 1000, 32, 20.0), np.arange(4000)
    members = model.members.sum(axis=1)
    assert members.min() >= 1 and members[0] > 3 * members[8] and set(model.members.sum(axis=0)) == {1, 2}
    assert np.allclose(model.popularity[1].sum(axis=1), 1)
    home, second = model.homes(ids)
    assert 0.2 < (home != second).mean() < 0.35
    size = model.sizes(ids)
    assert abs(size.mean() - 20.0) < 1.5 and np.median(size) < 14 and size.max() > 150
    node, topic = model.rows(ids)
    light = size[node] <= 20
    own = (model.members[home[node], topic] | model.members[second[node], topic])[light].mean()
    strangers = (model.members[home[node][::-1], topic] | model.members[second[node][::-1], topic])[light].mean()
    assert own > 0.6 and own > 2 * strangers
