#!/bin/sh
# Installs the simulators that otafl is raced beside, each in an environment of its own in .venvs.
#
#     sh benchmarks/race/setup.sh            (PYTHON=python3.11 for another interpreter)
#
# BlazeFL asks for Python 3.14, and recommends the one without a global lock, python3.14t.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

install() { # environment, packages
    environment="$here/.venvs/$1"
    shift
    "${PYTHON:-python3}" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet psutil "$@"
}

install fedjax fedjax==0.0.17 jax==0.10.2 jaxlib==0.10.2 dm-haiku==0.0.17 optax==0.2.8 numpy==2.4.6
# On Linux, PyPI's torch may come with CUDA: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
# and torch==2.13.0+cpu here spare some gigabytes.
install pfl "pfl[pytorch]==0.6.0" torch==2.13.0 numpy==2.4.6
install flower "flwr[simulation]==1.42.0" torch==2.13.0
PYTHON="${PYTHON_BLAZEFL:-python3.14t}"
install blazefl "blazefl[contrib,reproducibility]==3.0.0" torch==2.13.0
