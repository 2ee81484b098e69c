"""Fine-tune a frozen model by low-rank adapters over fading, and compare what devices send.

The server has trained a small MLP on the digits 0 to 4, and devices adapt it to 5 to 9. Every mode
has the energy of one slot a round, so fewer coordinates have more energy each. The step size of a
mode and SNR is the best on validation images.
"""

import otafl

MODES = ("both", "freeze_a", "square", "tangent")

scenario = {
    "name": "adapters",
    "data": {
        "name": "digits",
        "validation": 0.2,
        "server": {"classes": [0, 1, 2, 3, 4]},
        "partition": {"name": "label_skew", "classes_per_device": 2},
    },
    "model": {
        "name": "mlp",
        "hidden": [32, 32],
        "start": {"name": "pretrained_here", "epochs": 20},
    },
    "channel": {"name": "rayleigh"},
    "power": "gbma",
    "transport": {"name": "over_the_air", "snr_convention": "total_energy"},
    "devices": {"count": 10},
    "training": {"rounds": 40, "local_steps": 4, "batch_size": 10, "eval_every": 40},
    "trials": 3,
    "sweep": {
        "algorithm": [{"name": "lora", "mode": mode, "rank": 4} for mode in MODES],
        "algorithm.learning_rate": [0.03, 0.1, 0.3, 1.0],
        "channel.snr_db": [0, 20],
    },
}

best = otafl.select_tuned(otafl.run(scenario), over="learning_rate")
symbols = otafl.compute_symbols_per_round(best).mean("trial").isel(snr_db=0)
accuracy = best.test_accuracy.isel(round=-1)
print("mode      symbols a round   accuracy at 0 dB      at 20 dB")
for place, mode in enumerate(MODES):
    here = accuracy.isel(algorithm=place).transpose("snr_db", "trial")
    cells = (f"{float(one.mean()):.2f} ± {float(one.std(ddof=1)):.2f}" for one in here)
    print(f"{mode:10s}{float(symbols[place]):10,.0f}{'':9s}", "     ".join(cells))
