"""Placeholders in inputs of other sizes."""

from maxcode.evaluator.oracle.sequences import resized

SPECS = {
    "input_ids": {"shape": [2, 15], "dtype": "int64", "kind": "ids", "fill": [[[[0, 2], [1, 7]], 100]]},
    "attention_mask": {"shape": [2, 15], "dtype": "int64", "kind": "mask"},
    "grid": {"shape": [2, 3], "dtype": "int64", "kind": "literal", "values": [[1, 4, 6], [1, 4, 6]]},
}


def test_placeholders_stand_behind_padding_on_the_left():
    made = resized(SPECS, (2, 15), (3, 15), "left")
    pads = made["attention_mask"]["pad_left"]
    assert made["input_ids"]["fill"] == [
        [[[row, row + 1], [1 + pads[row], 7 + pads[row]]], 100] for row in range(2)
    ]  # fmt: skip
    assert made["grid"] == SPECS["grid"]


def test_they_stay_where_nothing_is_padded_before_them():
    for padding in ("right", None):
        assert resized(SPECS, (2, 15), (3, 20), padding)["input_ids"]["fill"] == SPECS["input_ids"]["fill"]
