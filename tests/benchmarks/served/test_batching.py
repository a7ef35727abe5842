"""The rounds of the benchmark of batching configurations, from made-up figures."""

from benchmarks.served.batching import beside, median_round, same_points


def test_served_keeps_the_median_round_whole():
    rounds = [{"throughput_of_floor": share, "requests_per_s": rate} for share, rate in ((0.9, 1), (0.8, 2), (0.95, 3))]
    expected = {"throughput_of_floor": 0.9, "requests_per_s": 1, "throughput_of_floor_rounds": [0.8, 0.9, 0.95]}
    assert median_round(rounds) == expected


def test_served_fp64_is_compared_round_by_round():
    def served(rate, p50, clients=64):
        return {
            "configuration": "dynamic batching",
            "concurrency": clients,
            "requests_per_s": rate,
            "latency_p50_ms": p50,
            "throughput_of_floor": rate / 1000,
        }

    single = [
        [served(1, 1, 1), served(100, 2.0)],
        [served(1, 1, 1), served(200, 1.0)],
        [served(1, 1, 1), served(80, 0)],
    ]
    double = [served(90, 2.2), served(190, 1.3), served(80, 3.0)]
    found = beside(double, same_points(single, double[0]))
    assert found["requests_per_s_of_fp32_rounds"] == [0.9, 0.95, 1.0]
    assert found["requests_per_s_of_fp32"] == 0.95
    assert found["p50_of_fp32_rounds"] == [1.1, 1.3]
    assert found["requests_per_s"] == 90
