"""Whole pipelines, as a user converts them: every part gated, the loop's latents and the image in float64."""

import pytest

from maxcode import api
from maxcode.progress import Progress
from maxcode.targets import parse_target

CHECKS = ("standalone", "compile", "exact")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flux", "sdxl"])
def test_ten_steps_equal_the_source(kind, tmp_path):
    pytest.importorskip("diffusers")
    from tests.diffusion.tiny_pipelines import write

    folder, output = write(kind, tmp_path / "source"), tmp_path / "converted"
    gate = api.GateOptions(checks=CHECKS)
    request = api.ConvertRequest(parse_target(str(folder)), output, api.request_options(output), gate)
    with Progress(quiet=True) as progress:
        record = api.convert(request, progress)
    assert record["gaps"] == []
    failed = [check for check in record["checks"] if check["status"] == "fail"]
    assert failed == []
    names = {check["name"] for check in record["checks"]}
    assert {"loop/latents", "loop/image", "loop/compile", "vae/exact", "text_encoder/exact"} <= names
    assert record["status"] == "verified"
    assert (output / "components" / "vae" / "weights").is_dir()
    assert (output / "converted" / "pipeline.py").is_file()
