#!/usr/bin/env python3
import pathlib
import subprocess
import sys
import tempfile
import unittest

import model_choice

HERE = pathlib.Path(__file__).resolve().parent


def point(m, ns, model_choice_ns, model_ns=0.0):
    return {"m": m, "ns": ns, "model_choice_ns": model_choice_ns, "model_ns": model_ns}


def export(*points, spec="int4, scale bf16 per 1x128, zero points none", x="bfloat16"):
    return {"schema": 1, "entries": [{"layer": {"spec": spec, "n": 64, "k": 64, "x": x}, "points": list(points)}]}


class ModelChoiceTest(unittest.TestCase):
    def test_ratios_are_by_format_and_range_of_m(self):
        found = model_choice.losses(export(point(1, 100, 110), point(32, 100, 100), point(64, 100, 150)))
        self.assertEqual(found, {"int4, scale bf16 per 1x128; bfloat16": {32: [1.1, 1.0], 128: [1.5]}})

    def test_points_without_the_models_kernel_do_not_count(self):
        self.assertEqual(model_choice.render(export(point(1, 100, 0), point(2, 0, 100))),
                         "No point has a time of the model's kernel.")

    def test_the_mean_is_geometric_and_expectations_count_both_ways(self):
        text = model_choice.render(export(point(1, 100, 200, 110), point(2, 100, 50, 90)))
        self.assertIn("| 1.000, worst 2.00 of 2 | – | – | – |", text)
        self.assertIn("over 2 points of 1 layers: 1.000.", text)
        self.assertIn("off by 11 % in the mean", text)

    def test_the_last_results_file_renders(self):
        run = subprocess.run([sys.executable, HERE / "model_choice.py",
                              HERE / "results/2026-12-01-h200-model-choice.json"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("points of 60 layers", run.stdout)

    def test_what_is_no_export_is_told(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("{}")
            file.flush()
            run = subprocess.run([sys.executable, HERE / "model_choice.py", file.name], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn(file.name, run.stderr)


if __name__ == "__main__":
    unittest.main()
