import numpy as np
import pandas as pd
import pytest
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.configuration import REQUEST_BYTES, Configuration
from triton_regressors.clients.errors import InvalidRequest


def configuration(*kinds: str, max_batch_size: int = 8, width: int = 1) -> Configuration:
    """Return that of a model with an input of each type, two columns wide, and one output."""
    config = model_config_pb2.ModelConfig(name="houses", max_batch_size=max_batch_size)
    for number, kind in enumerate(kinds):
        config.input.add(name="XYZ"[number], data_type=f"TYPE_{kind}", dims=[2])
    config.output.add(name="y", data_type="TYPE_FP32", dims=[width])
    return Configuration.of(config)


class TestWhatCannotBeWrong:
    """A conversion that does not depend on the columns' names, and on which of them hold categories."""

    @pytest.mark.parametrize(
        ("kind", "X", "certain"),
        [
            ("FP32", np.ones((3, 2), np.float32), True),
            ("FP32", np.full((3, 2), 0.5), True),
            ("FP32", [[1, 2.5]], True),
            ("FP32", [[True, False]], True),
            ("FP32", np.array([[1, np.nan]]), True),
            ("FP32", np.array([[1, 2]], ">f8"), True),
            ("FP32", [[1, 0.1]], False),
            ("FP32", [[1, 2**24 + 1]], False),
            ("FP32", [[1, 1e-60]], False),
            ("FP64", [[1, 0.1]], True),
            ("FP64", [[1, 2**53 + 1]], False),
            ("INT64", [[1, 2.0]], True),
            ("STRING", [["a", None]], True),
            ("STRING", pd.DataFrame({"a": ["b"], "c": ["d"]}), False),
            ("FP32", pd.DataFrame({"a": [1.0], "b": [2.0]}), False),
            ("FP32", pd.DataFrame([[1.0, 2.0]]), False),
        ],
    )
    def test_one_input(self, kind: str, X: object, certain: bool) -> None:
        found = configuration(kind)
        assert found.tensors(X)[1] is certain
        assert found.tensors({"X": X})[1] is certain

    def test_several(self) -> None:
        found = configuration("FP32", "STRING")
        numbers, strings = np.ones((1, 2)), [["a", "b"]]
        assert found.tensors({"X": numbers, "Y": strings})[1]
        assert not found.tensors({"X": numbers * 0.1, "Y": strings})[1]
        assert not found.tensors({"X": pd.DataFrame(numbers), "Y": strings})[1]

    def test_what_does_not_fit_is_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="'houses' has the inputs 'X' and 'Y'"):
            configuration("FP32", "STRING").tensors(np.ones((1, 2)))


class TestRowsAndIdsInOneTensor:
    """The input of a fleet that is named after its other two."""

    def configured(self, *more: tuple[str, str, int]) -> Configuration:
        config = model_config_pb2.ModelConfig(name="demand", max_batch_size=10**7)
        for name, kind, width in (("X", "FP32", 2), ("shop", "INT64", 1), *more):
            config.input.add(name=name, data_type=f"TYPE_{kind}", dims=[width], optional=True)
        return Configuration.of(config)

    def test_they_are_joined_if_a_message_holds_them(self) -> None:
        found = self.configured(("X_shop_FP32x2_INT64", "INT32", 4))
        tensors, certain = found.tensors({"X": np.ones((3, 2), np.float32), "shop": np.ones((3, 1), np.int64)})
        assert certain
        (both,) = found.sent(tensors).values()
        assert both.tolist() == [[0x3F800000, 0x3F800000, 1, 0]] * 3
        assert found.sent({"X": tensors["X"]}).keys() == {"X"}
        rows = REQUEST_BYTES // 16 + 1
        many = {name: np.broadcast_to(array[:1], (rows, array.shape[1])) for name, array in tensors.items()}
        assert found.sent(many).keys() == tensors.keys()

    @pytest.mark.parametrize(
        "other",
        [("X_shop", "FP32", 4), ("X_shop_FP32x2_INT64", "INT32", 3), ("X_shop_FP32x3_INT64", "INT32", 5)],
    )
    def test_inputs_of_other_names_and_widths_are_not_it(self, other: tuple[str, str, int]) -> None:
        assert self.configured(other).joined is None


@pytest.mark.parametrize(
    ("found", "rows", "parts"),
    [
        (configuration("FP64"), 8, 1),
        (configuration("FP64"), 9, 2),
        (configuration("FP64", max_batch_size=0), 10**6, 1),
        (configuration("FP64", max_batch_size=10**7), REQUEST_BYTES // 16, 1),
        (configuration("FP64", max_batch_size=10**7), REQUEST_BYTES // 16 + 1, 2),
        (configuration("FP64", max_batch_size=10**7, width=2**20), 16, 2),
    ],
)
def test_the_parts_of_a_table(found: Configuration, rows: int, parts: int) -> None:
    assert len(found.parts(found.tensors(np.broadcast_to(1.0, (rows, 2)))[0])) == parts
