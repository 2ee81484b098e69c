"""Channels of files, and what is refused of them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.made_channels import make_channel
from support.refusals import assert_refused

from otafl.channels.trace import Trace, export_impulse_responses, export_trace
from otafl.channels.trace_files import read
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


BAND: dict[str, float] = {"carrier_hz": 3.5e9, "bandwidth_hz": 1e6}


def replay(path: Path, devices: int, trials: int = 1, **settings: Any) -> Trace:
    settings = {"path": str(path), "start": "zero"} | settings
    return make_channel("trace", devices, range(trials), seed=4, **settings)


def responses(path: Path, *, rounds: int = 5, devices: int = 3, **more: Any) -> np.ndarray:
    """A file of random frequency responses of 2 antennas and 4 groups, and these."""
    h = make(rounds, devices, 2, 4)
    np.savez(path, **{"h": h, "bandwidth_hz": BAND["bandwidth_hz"]} | more)
    return h


def make(*shape: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(size=shape) + 1j * generator.normal(size=shape)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("rayleigh", {"path_loss_db": 90.0}),
        ("umi", {"speed_kmh": 30.0, "mobility": "linear", "antennas": 2}),
    ],
)
def test_what_is_exported_comes_back(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """Of the second trial of two, flat and on a grid, with constant and with changing gains, rounds
    in any order."""
    original = make_channel(name, 4, (0, 1), torch.float32, seed=4, **settings)
    rounds = [7, 0, 80]
    export_trace(original, rounds, tmp_path / "trace.npz", trial=1, **BAND)
    same = replay(tmp_path / "trace.npz", 4, gains="absolute")
    fewer = replay(tmp_path / "trace.npz", 2, gains="absolute")
    for place, round in enumerate(rounds):
        state, back = original.get_state(round), same.get_state(place)
        assert torch.equal(back.h[0].to(state.h), state.h[1])
        assert torch.equal(back.gain[0].to(state.gain), state.gain[1])
        assert torch.equal(fewer.get_state(place).h, back.h[:, :2])


def test_a_run_that_is_longer_starts_the_file_again(tmp_path: Path) -> None:
    h = responses(tmp_path / "t.npz", gain=np.ones(3))
    trace = replay(tmp_path / "t.npz", 3)
    for round in (0, 4, 5, 13, 2**40):
        assert np.array_equal(trace.get_state(round).h[0, :, :, 0].numpy(), h[round % 5])


def test_without_gains_in_the_file_mean_powers_are_gains(tmp_path: Path) -> None:
    h = responses(tmp_path / "t.npz")
    gain = (np.abs(h) ** 2).mean((0, 2, 3))
    absolute, relative = (
        replay(tmp_path / "t.npz", 3, gains=gains).get_state(2)
        for gains in ("absolute", "relative")
    )
    assert absolute.gain[0].numpy() == pytest.approx(gain)
    assert relative.gain[0].numpy() == pytest.approx(gain / gain.mean())
    expected = h[2] / np.sqrt(gain)[:, None, None]
    assert np.allclose(absolute.h[0, :, :, 0], expected, rtol=1e-12)
    assert torch.equal(absolute.h, relative.h)


def test_gains_of_the_file(tmp_path: Path) -> None:
    """By round; relative ones over the mean of all rounds and of the devices that take part."""
    gain = np.random.default_rng(2).uniform(1, 9, (5, 3))
    h = responses(tmp_path / "t.npz", gain=gain)
    state = replay(tmp_path / "t.npz", 2).get_state(6)
    assert state.gain[0].numpy() == pytest.approx(gain[1, :2] / gain[:, :2].mean())
    assert np.array_equal(state.h[0, :, :, 0].numpy(), h[1, :2])
    lossy = replay(tmp_path / "t.npz", 2, path_loss_db=30).get_state(6)
    assert lossy.gain.numpy() == pytest.approx(state.gain.numpy() / 1000)
    absolute = Trace.Settings(path="t", gains="absolute")
    assert absolute.is_physical
    assert not Trace.Settings(path="t").is_physical
    with pytest.raises(ValueError, match="leave snr_db out, or set gains: relative"):
        Trace.Settings(path="t", gains="absolute", snr_db=3)


def test_blocks_are_the_rounds_that_follow(tmp_path: Path) -> None:
    h = responses(tmp_path / "t.npz", gain=np.ones(3))
    state = replay(tmp_path / "t.npz", 3, block_symbols=100).get_state(3)
    blocks = state.extend_to(301)[0].numpy()  # [K, A, B, F]
    assert blocks.shape == (3, 2, 4, 4)
    for block in range(4):
        assert np.array_equal(blocks[:, :, block], h[(3 + block) % 5])
    assert replay(tmp_path / "t.npz", 3).get_state(3).extend_to(301).shape[3] == 1


@pytest.mark.parametrize("direction", ["uplink", "downlink"])
def test_impulse_responses_by_their_formula(direction: str, tmp_path: Path) -> None:
    """h(f) = sum_l a_l exp(-j 2 pi f tau_l) at the centres of 3 groups of 30 MHz, whatever the
    file's band; rounds are batch after batch, time after time. Gain is the paths' power."""
    rng = np.random.default_rng(3)
    batch, antennas, devices, paths, times = 2, 2, 3, 4, 3
    z = rng.standard_normal((2, batch, 1, antennas, devices, 1, paths, times))
    a = 1e-4 * (z[0] + 1j * z[1])
    tau = rng.uniform(0, 1e-6, (batch, 1, devices, paths))
    given = (a, tau)
    if direction == "downlink":
        given = a.transpose(0, 3, 4, 1, 2, 5, 6), tau.transpose(0, 2, 1, 3)
    path = tmp_path / "t.npz"
    export_impulse_responses(*given, path, direction=direction, **BAND)
    trace = replay(path, 3, subcarrier_groups=3, bandwidth_hz=3e7, gains="absolute")
    gain = (np.abs(a[:, 0, :, :, 0]) ** 2).sum(3).mean((0, 1, 3))
    for round in range(batch * times):
        b, t = divmod(round, times)
        state = trace.get_state(round)
        assert state.gain[0].numpy() == pytest.approx(gain)
        for k in range(devices):
            for f, frequency in enumerate((-1e7, 0.0, 1e7)):
                turn = np.exp(-2j * np.pi * frequency * tau[b, 0, k])
                h = (a[b, 0, :, k, 0, :, t] * turn).sum(1) / np.sqrt(gain[k])
                assert np.allclose(state.h[0, k, :, 0, f].numpy(), h, rtol=1e-9)


def test_files_that_will_not_do(tmp_path: Path) -> None:
    def refusal(path: Path, devices: int = 3, **settings: Any) -> str:
        with pytest.raises(UserError) as error:
            replay(path, devices, **settings)
        return str(error.value).replace(str(path), "FILE")

    path = tmp_path / "t.npz"
    assert refusal(path) == ("channel.path: there is no file 'FILE'; numpy.save writes one")
    path.write_text("no trace")
    said = refusal(path)
    assert said.startswith(
        "channel.path: 'FILE' cannot be read (it is not a NumPy file of numbers)"
    )
    assert "scipy.io.loadmat" in said
    responses(path)
    assert refusal(path, 4) == (
        "channel.path: 'FILE' has 3 devices and the scenario 4; set devices.count to at most 3"
    )
    assert refusal(path, subcarrier_groups=2) == (
        "channel.subcarrier_groups: got 2, but 'FILE' has frequency responses of 4 groups; leave "
        "it out"
    )
    assert refusal(path, bandwidth_hz=2e6) == (
        "channel.bandwidth_hz: 'FILE' has frequency responses over 1e+06 Hz; set bandwidth_hz "
        "to that"
    )


def test_each_trial_draws_its_devices(tmp_path: Path) -> None:
    """Of ten devices three, none twice, others in other trials: responses, gains over the trial's
    mean and places are those of the same ones."""
    place = np.arange(30.0).reshape(10, 3)
    gain = np.arange(1.0, 11.0)
    h = responses(
        tmp_path / "t.npz",
        devices=10,
        gain=gain,
        position_m=place,
        base_m=np.array([1.0, 2.0, 9.0]),
    )
    trace = replay(tmp_path / "t.npz", 3, 20, places="per_trial", antennas=1)
    state, sets = trace.get_state(7), set()
    for trial in range(20):
        known = trace.get_positions(7, trial)
        assert known is not None
        assert known.base_m.tolist() == [[1.0, 2.0]]
        own = (known.device_m[:, 0] / 3.0).astype(int)
        assert len(set(own)) == 3
        sets.add(tuple(own))
        assert np.array_equal(state.h[trial, :, :, 0].numpy(), h[2, own, :1])
        assert state.gain[trial].numpy() == pytest.approx(gain[own] / gain[own].mean())
    assert len(sets) > 15


def test_settings_and_sizes_that_do_not_go_with_a_file() -> None:
    cases: list[tuple[Any, str]] = [
        ({}, "got neither; give one"),
        ({"path": "t.npz", "scene": "munich"}, "got both; give one"),
        ({"scene": "atlantis"}, "etoile"),
    ]
    assert_refused(Trace.Settings, cases, ValueError)
    few = "channel.scene: 'munich' has 96 devices and the scenario 97; set devices.count to at"
    narrow = "channel.antennas: got 9, but channel.scene: 'munich' has 8"
    cases = [({"devices": 97}, few), ({"devices": 5, "antennas": 9}, narrow)]
    assert_refused(functools.partial(make_channel, "trace", scene="munich"), cases)


NAN = np.full((5, 3, 2, 4), np.nan * 1j)
GROUND = ("x_m", "y_m", "coverage_db", "roof_m")
MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"gain": np.array("x")}, "gain of .* got the type str"),
    ({"h": NAN}, "h of .*: 120 of 120 .* first at round 0, device 0"),
    ({"h": np.ones((2, 2))}, r"got float64 \[2, 2\]; .* of parts x and y save x \+ 1j \* y"),
    ({"h": make(3)}, r"h of .* has the shape \(3,\); expected \(round, device"),
    ({"h": np.zeros((0, 2), complex)}, r"has the shape \(0, 2\)"),
    ({"gain": np.array([1, 1, 1e39])}, "gain of .*: 1 of 3 .*2"),
    ({"gain": -np.ones(3)}, "gain of .*: 3 of 3 .* negative, .* 0"),
    ({"gain": np.ones(2)}, r"gain of .* has the shape \(2,\)"),
    ({"a": make(5, 3, 2, 4)}, "lacks tau_s"),
    ({"a": make(2, 2), "tau_s": np.zeros((2, 1))}, r"\(round, device, antenna, path\)"),
    ({"bandwidth_hz": 0.0}, "bandwidth_hz .* positive number"),
    ({"base_m": np.ones(2)}, r"base_m of .* has the shape \(2,\)"),
    (dict.fromkeys(GROUND, np.ones(2)), "coverage_db and roof_m of .* must have the shape"),
]


def test_a_malformed_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    def read_changed(**changes: Any) -> None:
        responses(tmp_path / "t.npz", **changes)
        replay(tmp_path / "t.npz", 3)

    cases = [(changes, f"^channel.path: .*{said}.*$") for changes, said in MALFORMED]
    assert_refused(read_changed, cases)


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 4), (3, 2, 4, 5)])
def test_responses_are_those_of_an_array(shape: tuple[int, ...], tmp_path: Path) -> None:
    h = make(*shape)
    np.save(tmp_path / "h.npy", h)
    found = read(str(tmp_path / "h.npy"))
    assert np.array_equal(found.response, h.reshape((*shape, 1, 1)[:4]))
    assert found.bandwidth_hz is None


def test_archive_has_names_of_a_trace_or_a_single_array(tmp_path: Path) -> None:
    h, a, tau = make(3, 2), make(3, 2, 1, 5), np.full((2, 5), 1e-7)
    np.savez(tmp_path / "one.npz", h)
    assert np.array_equal(read(str(tmp_path / "one.npz")).response[..., 0, 0], h)
    np.savez_compressed(tmp_path / "paths.npz", a=a, tau_s=tau)
    found = read(str(tmp_path / "paths.npz"))
    assert np.array_equal(found.response, a)
    assert found.delay_s is not None
    assert found.delay_s.shape == (1, 2, 5)


def test_file_without_a_channel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        ("pickled.npy", "channel.path: 'pickled.npy' cannot be read"),
        ("huge.npy", "channel.path: 'huge.npy' cannot be read"),
        ("open.npy", "channel.path: 'open.npy' cannot be read"),
        ("method.npz", "channel.path: 'method.npz' cannot be read"),
        ("delays.npz", "channel.path: 'delays.npz' lacks tau_s"),
        ("other.npz", "channel.path: 'other.npz' lacks h, and has u, v"),
    ]
    monkeypatch.chdir(tmp_path)
    objects = np.array([{"a": 1}], object)
    np.save("pickled.npy", objects, allow_pickle=True)
    head = np.lib.format.magic(1, 0)
    text = b"{'descr': '<c16', 'fortran_order': False, 'shape': (9999999999999, 9999), }\n"
    Path("huge.npy").write_bytes(head + len(text).to_bytes(2, "little") + text)
    Path("open.npy").write_bytes(Path("huge.npy").read_bytes().replace(b")", b"("))
    np.savez("method.npz", h=make(2, 2))
    packed = Path("method.npz").read_bytes()
    directory = packed.index(b"PK\x01\x02") + 10  # with the number of the compression method
    Path("method.npz").write_bytes(packed[:directory] + b"\x63" + packed[directory + 1 :])
    np.savez("delays.npz", a=make(2, 2, 1, 3), x=np.zeros(1))
    np.savez("other.npz", u=make(2, 2), v=make(2, 2))
    assert_refused(read, cases)


def test_archive_that_grows_beyond_the_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "h.npz", h=np.ones((100, 100)))
    monkeypatch.setattr("otafl.channels.trace_files.MAX_BYTES", 1 << 16)
    with pytest.raises(UserError, match="a trace is kept in memory; use fewer rounds"):
        read(str(tmp_path / "h.npz"))
