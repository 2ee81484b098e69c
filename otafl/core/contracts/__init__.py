"""Frozen dataclasses of tensors that the components of a round exchange.

Sizes in shapes: S trials of one stack, K devices in the population, N (trial, device) pairs that
take part in a round, n rows of a chunk or of one payload group, A server antennas, P coordinates of
a payload.
"""

from __future__ import annotations

from otafl.core.contracts.cohort import MIN_SNR as MIN_SNR
from otafl.core.contracts.cohort import Coefficients as Coefficients
from otafl.core.contracts.cohort import Cohort as Cohort
from otafl.core.contracts.cohort import Link as Link
from otafl.core.contracts.learning import Batch as Batch
from otafl.core.contracts.learning import Context as Context
from otafl.core.contracts.learning import FineTuneSpec as FineTuneSpec
from otafl.core.contracts.learning import LocalContext as LocalContext
from otafl.core.contracts.learning import LocalData as LocalData
from otafl.core.contracts.learning import MomentsFn as MomentsFn
from otafl.core.contracts.learning import PredictFn as PredictFn
from otafl.core.contracts.learning import Samples as Samples
from otafl.core.contracts.learning import Submodel as Submodel
from otafl.core.contracts.learning import View as View
from otafl.core.contracts.learning import Workload as Workload
from otafl.core.contracts.link import MIN_RATE as MIN_RATE
from otafl.core.contracts.link import NO_LIMITS as NO_LIMITS
from otafl.core.contracts.link import NOISE_VARIANCE as NOISE_VARIANCE
from otafl.core.contracts.link import ChannelState as ChannelState
from otafl.core.contracts.link import ChannelStatistics as ChannelStatistics
from otafl.core.contracts.link import LinkBudget as LinkBudget
from otafl.core.contracts.link import LinkReport as LinkReport
from otafl.core.contracts.link import Paths as Paths
from otafl.core.contracts.link import TransmitLimits as TransmitLimits
from otafl.core.contracts.link import apply_combiner as apply_combiner
from otafl.core.contracts.payload import Broadcast as Broadcast
from otafl.core.contracts.payload import DeliveredMasks as DeliveredMasks
from otafl.core.contracts.payload import Group as Group
from otafl.core.contracts.payload import Payload as Payload
from otafl.core.contracts.payload import Received as Received
from otafl.core.tensors import MODEL as MODEL
from otafl.core.tensors import VERSION as VERSION
from otafl.core.tensors import Hyper as Hyper
from otafl.core.tensors import Tensors as Tensors
from otafl.core.tensors import take_rows as take_rows
from otafl.core.tensors import unsqueeze_like as unsqueeze_like
