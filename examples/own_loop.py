"""Use the uplink in a training loop of your own.

The loop, the model and the data are plain PyTorch. otafl draws the channel, sets the powers and
returns the mean update that the server receives.
"""

import copy

import torch
from sklearn.datasets import load_digits

import otafl

torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
uplink = otafl.WirelessUplink(10, channel="rayleigh", power="gbma", snr_db=0, seed=1)


def train(device, start):
    """Return the update of a device: five steps on its own images."""
    local = copy.deepcopy(model)
    optimiser = torch.optim.SGD(local.parameters(), lr=0.3)
    own = torch.arange(device, 1500, 10)
    for step in range(5):
        batch = own[20 * step : 20 * (step + 1)]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(local(x[batch]), y[batch]).backward()
        optimiser.step()
    return {name: value - start[name] for name, value in local.state_dict().items()}


for round in range(20):
    start = {name: value.clone() for name, value in model.state_dict().items()}
    mean, report = uplink(round, [train(device, start) for device in range(10)])
    model.load_state_dict({name: start[name] + mean[name] for name in start})

accuracy = (model(x[1500:]).argmax(1) == y[1500:]).float().mean()
print(f"test accuracy {float(accuracy):.3f} after 20 rounds")
