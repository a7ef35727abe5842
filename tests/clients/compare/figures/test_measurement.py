from triton_regressors.clients.compare.batching import quick_configurations
from triton_regressors.clients.compare.figures.measurement import Settings, expected_time
from triton_regressors.commands.compare import _windows


def test_how_long_it_takes_is_known_beforehand() -> None:
    assert expected_time(24, Settings(), floor=True) == "3 to 7 minutes"
    assert expected_time(24, Settings(), floor=False) == "2 to 4 minutes"
    assert expected_time(8, Settings(0.5, 0.5, 6), floor=True) == "32 to 56 seconds"
    assert expected_time(1, Settings(0.0, 1.0, 1), floor=False) == "1 second"


def test_a_quick_comparison_takes_less_than_a_minute() -> None:
    quick, usual = (_windows(quick, None, None, None) for quick in (True, False))
    labels = [configuration.label for configuration in quick_configurations(64)]
    assert labels == ["none", "on", "delay 500 µs", "on, 2 instances"]
    assert expected_time(len(labels) * 2, Settings(**quick), floor=True) == "32 to 56 seconds"
    assert Settings(**usual) == Settings()
    assert _windows(True, None, 2.0, None) == {**quick, "window_s": 2.0}
