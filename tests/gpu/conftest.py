"""Tests of computing on a GPU, and on a pretended one.

PyTorch knows the pretended one for the rest of a program's life, and must know it before its first
gradient. So these tests are collected only in a program of their own, which says what it runs them
on: `golden.test_gpu` starts it, and `make gpu`.
"""

from __future__ import annotations

import os

ON = os.environ.get("OTAFL_GPU_TESTS", "")

if ON == "pretended":
    from support.pretended import register_device

    register_device()

if ON:
    from support.signs import fix_signs

    fix_signs()

collect_ignore_glob = [] if ON in ("pretended", "cuda") else ["test_*.py"]
