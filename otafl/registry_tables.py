"""The tables of `otafl.registry`: what a scenario can name, with its settings class,
implementation, one line and citation. Nothing here is imported by naming it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A name of a table. config: "module:Class" of its torch-free settings. implementation:
    "module:callable". summary: one line. citation: the paper it comes from, or empty."""

    name: str
    config: str
    implementation: str
    summary: str
    citation: str = ""


def _table(module: str, *entries: tuple[str, ...]) -> dict[str, Entry]:
    """Entries (name, settings class, implementation, summary[, citation]) of settings that live in
    one module."""
    return {name: Entry(name, f"{module}:{config}", *rest) for name, config, *rest in entries}


_SPEEDS = "otafl.clock:device_speeds"

TABLES: dict[str, dict[str, Entry]] = {
    "data": _table(
        "otafl.data.config",
        (
            "digits",
            "DigitsConfig",
            "otafl.data.digits:load",
            "scikit-learn's 1,797 digits of 8x8 pixels; needs no download",
            "Alpaydin and Kaynak 1998",
        ),
        (
            "mnist",
            "MnistConfig",
            "otafl.data.mnist:load",
            "70,000 handwritten digits of 28x28 pixels",
            "LeCun et al. 1998",
        ),
        (
            "fashion_mnist",
            "FashionMnistConfig",
            "otafl.data.fashion_mnist:load",
            "70,000 articles of clothing, 28x28 pixels",
            "Xiao et al. 2017",
        ),
        (
            "cifar10",
            "Cifar10Config",
            "otafl.data.cifar10:load",
            "60,000 colour images of 32x32 pixels, 10 classes",
            "Krizhevsky 2009",
        ),
        (
            "cifar100",
            "Cifar100Config",
            "otafl.data.cifar100:load",
            "60,000 colour images of 32x32 pixels, 100 classes",
            "Krizhevsky 2009",
        ),
        (
            "femnist",
            "FemnistConfig",
            "otafl.data.femnist:load",
            "handwritten characters of 28x28 pixels, by writer",
            "Caldas et al. 2018",
        ),
        (
            "sent140",
            "Sent140Config",
            "otafl.data.sent140:load",
            "positive and negative tweets as word vectors, by user",
            "Caldas et al. 2018",
        ),
    ),
    "partition": _table(
        "otafl.data.config",
        ("iid", "IidConfig", "otafl.data.partition:partition", "shuffled and dealt out evenly"),
        (
            "shards",
            "ShardsConfig",
            "otafl.data.partition:partition",
            "sorted by label and cut into shards, a few for each device",
            "McMahan et al. 2017",
        ),
        (
            "dirichlet",
            "DirichletConfig",
            "otafl.data.partition:partition",
            "each class split by Dirichlet proportions",
            "Yurochkin et al. 2019",
        ),
        (
            "label_skew",
            "LabelSkewConfig",
            "otafl.data.partition:partition",
            "each device holds a fixed number of classes",
        ),
    )
    | _table(
        "otafl.data.config_partition",
        (
            "lognormal",
            "LognormalConfig",
            "otafl.data.partition:partition",
            "shuffled, sizes from a log-normal law",
            "Li et al. 2020",
        ),
        (
            "dirichlet_mix",
            "DirichletMixConfig",
            "otafl.data.partition:partition",
            "equal sizes, each device's class mix from a Dirichlet",
            "Hsu, Qi, Brown 2019",
        ),
        (
            "class_window",
            "ClassWindowConfig",
            "otafl.data.partition:partition",
            "neighbouring classes in log-normal shares, the split of pFedMe and pFedBreD",
            "Shi et al. 2023",
        ),
        (
            "natural",
            "NaturalConfig",
            "otafl.data.partition:partition",
            "a device is a user of the data set, or a group of users",
            "Caldas et al. 2018",
        ),
    ),
    "model": _table(
        "otafl.models.config",
        ("mlp", "MlpConfig", "otafl.models.mlp:Mlp", "fully connected layers with ReLU"),
        (
            "cnn",
            "CnnConfig",
            "otafl.models.cnn:Cnn",
            "convolutions with max-pooling, then fully connected layers",
            "LeCun et al. 1998",
        ),
        (
            "softmax_regression",
            "SoftmaxRegressionConfig",
            "otafl.models.softmax_regression:SoftmaxRegression",
            "multinomial logistic regression (MCLR)",
        ),
        (
            "lstm",
            "LstmConfig",
            "otafl.models.lstm:Lstm",
            "long short-term memory over sequences",
            "Hochreiter and Schmidhuber 1997",
        ),
    )
    | _table(
        "otafl.models.vgg8",
        (
            "vgg8",
            "Vgg8Config",
            "otafl.models.cnn:Cnn",
            "five 3x3 convolutions and three fully connected layers",
            "Wang et al., TDPFed",
        ),
    ),
    "algorithm": _table(
        "otafl.algorithms.config",
        (
            "fedavg",
            "FedAvgConfig",
            "otafl.algorithms.fedavg:FedAvg",
            "federated averaging",
            "McMahan et al. 2017",
        ),
        (
            "fedrlr",
            "FedRLRConfig",
            "otafl.algorithms.fedrlr:FedRLR",
            "Riemannian low-rank compression with random linear coding",
            "Xue and Lau, FedRLR",
        ),
        (
            "fedrlr_plus",
            "FedRLRPlusConfig",
            "otafl.algorithms.fedrlr_plus:FedRLRPlus",
            "low-rank learning whose superposed updates add exactly, in the tangent space",
        ),
    )
    | _table(
        "otafl.algorithms.config_baselines",
        (
            "fedmid",
            "FedMiDConfig",
            "otafl.algorithms.fedmid:FedMiD",
            "nuclear norm by proximal SGD: singular values soft-thresholded",
            "Yuan, Zaheer, Reddi 2021",
        ),
        (
            "prox_sgd",
            "ProxSgdConfig",
            "otafl.algorithms.prox_sgd:ProxSgd",
            "l1 norm by proximal SGD: weights soft-thresholded",
            "Yang et al. 2020",
        ),
        (
            "magnitude_pruning",
            "MagnitudePruningConfig",
            "otafl.algorithms.magnitude_pruning:MagnitudePruning",
            "local SGD, of which the largest weights are kept",
            "Frankle et al. 2020",
        ),
    )
    | _table(
        "otafl.algorithms.config_prior",
        (
            "pfedbred",
            "PFedBreDConfig",
            "otafl.algorithms.pfedbred:PFedBreD",
            "a prior of each device's own around the broadcast model, by Bregman divergence",
            "Shi et al. 2023",
        ),
        (
            "pfedme",
            "PFedMeConfig",
            "otafl.algorithms.pfedme:PFedMe",
            "personal models by Moreau envelopes",
            "Dinh et al. 2020",
        ),
        (
            "per_fedavg",
            "PerFedAvgConfig",
            "otafl.algorithms.per_fedavg:PerFedAvg",
            "a global model that a gradient step personalises (MAML)",
            "Fallah et al. 2020",
        ),
    )
    | _table(
        "otafl.algorithms.config_tensor",
        (
            "tdpfed",
            "TDPFedConfig",
            "otafl.algorithms.tdpfed:TDPFed",
            "personal models drawn to CP-factorised ones, of which only the factors travel",
            "Wang et al., TDPFed",
        ),
    )
    | _table(
        "otafl.algorithms.config_rivals",
        (
            "fedprox",
            "FedProxConfig",
            "otafl.algorithms.fedprox:FedProx",
            "federated averaging with a penalty on the distance to the broadcast model",
            "Li et al. 2020, FedProx",
        ),
        (
            "scaffold",
            "ScaffoldConfig",
            "otafl.algorithms.scaffold:Scaffold",
            "control variates against the drift of unlike devices",
            "Karimireddy et al. 2020",
        ),
        (
            "ditto",
            "DittoConfig",
            "otafl.algorithms.ditto:Ditto",
            "a personal model drawn to the averaged one",
            "Li et al. 2021, Ditto",
        ),
        (
            "apfl",
            "ApflConfig",
            "otafl.algorithms.apfl:Apfl",
            "a personal mixture of an own and the averaged model",
            "Deng, Kamani, Mahdavi 2020",
        ),
        (
            "fedrep",
            "FedRepConfig",
            "otafl.algorithms.fedrep:FedRep",
            "a shared body, and a last layer for each device",
            "Collins et al. 2021",
        ),
        (
            "fedbn",
            "FedBnConfig",
            "otafl.algorithms.fedbn:FedBn",
            "federated averaging with normalisation layers kept at the devices",
            "Li et al. 2021, FedBN",
        ),
        (
            "fedem",
            "FedEMConfig",
            "otafl.algorithms.fedem:FedEM",
            "shared models, mixed by each device with weights of its own",
            "Marfoq et al. 2021",
        ),
        (
            "local_only",
            "LocalOnlyConfig",
            "otafl.algorithms.local_only:LocalOnly",
            "each device trains alone, nothing is sent",
        ),
    )
    | _table(
        "otafl.algorithms.config_exchange",
        (
            "fedamp",
            "FedAMPConfig",
            "otafl.algorithms.fedamp:FedAMP",
            "attentive message passing: each device is drawn to models like its own",
            "Huang et al. 2021",
        ),
        (
            "fedfomo",
            "FedFomoConfig",
            "otafl.algorithms.fedfomo:FedFomo",
            "forwarded models mixed by their gain on a device's validation samples",
            "Zhang et al. 2021",
        ),
        (
            "fedpac",
            "FedPACConfig",
            "otafl.algorithms.fedpac:FedPAC",
            "features aligned to class centroids, last layers mixed for each device",
            "Xu, Tong, Huang 2023",
        ),
        (
            "pfedhn",
            "PFedHNConfig",
            "otafl.algorithms.pfedhn:PFedHN",
            "a hypernetwork at the server generates each device's model",
            "Shamsian et al. 2021",
        ),
        (
            "pfedbayes",
            "PFedBayesConfig",
            "otafl.algorithms.pfedbayes:PFedBayes",
            "a normal distribution over models at each device, drawn to a global one",
            "Zhang et al. 2022",
        ),
    ),
    "channel": _table(
        "otafl.channels.config",
        ("awgn", "AwgnConfig", "otafl.channels.awgn:Awgn", "no fading, h = 1"),
        (
            "rayleigh",
            "RayleighConfig",
            "otafl.channels.rayleigh:Rayleigh",
            "flat Rayleigh block fading, h ~ CN(0, 1)",
        ),
        (
            "rician",
            "RicianConfig",
            "otafl.channels.rician:Rician",
            "flat Rician block fading, a line of sight and Rayleigh fading",
            "Xiao, Zheng, Beaulieu 2006",
        ),
    )
    | _table(
        "otafl.channels.config_3gpp",
        *(
            (
                f"tdl-{profile.lower()}",
                f"Tdl{profile}Config",
                "otafl.channels.tdl:Tdl",
                f"tapped delay line TDL-{profile} on an OFDM grid",
                "3GPP TR 38.901",
            )
            for profile in "ABCDE"
        ),
        *(
            (
                f"cdl-{profile.lower()}",
                f"Cdl{profile}Config",
                "otafl.channels.cdl:Cdl",
                f"clustered delay line CDL-{profile} on an OFDM grid, antennas by angles",
                "3GPP TR 38.901",
            )
            for profile in "ABCDE"
        ),
        (
            "umi",
            "UmiConfig",
            "otafl.channels.cell:Cell",
            "urban microcell with dropped devices, path loss and shadowing",
            "3GPP TR 38.901",
        ),
        (
            "uma",
            "UmaConfig",
            "otafl.channels.cell:Cell",
            "urban macrocell with dropped devices, path loss and shadowing",
            "3GPP TR 38.901",
        ),
        (
            "rma",
            "RmaConfig",
            "otafl.channels.cell:Cell",
            "rural macrocell with dropped devices, path loss and shadowing",
            "3GPP TR 38.901",
        ),
        (
            "trace",
            "TraceConfig",
            "otafl.channels.trace:TraceChannel",
            "replay of a file of measured or simulated responses",
        ),
    ),
    "csi": _table(
        "otafl.channels.config",
        ("perfect", "PerfectCsiConfig", "otafl.channels.csi:PerfectCsi", "h is known"),
        ("error", "ErrorCsiConfig", "otafl.channels.csi:ErrorCsi", "h is known with an error"),
        (
            "pilots",
            "PilotsCsiConfig",
            "otafl.channels.csi_pilots:Pilots",
            "estimates from pilots, least squares or MMSE",
        ),
        (
            "phase_feedback",
            "PhaseFeedbackCsiConfig",
            "otafl.channels.csi_feedback:PhaseFeedback",
            "the phase is known to so many bits",
        ),
        (
            "delay",
            "DelayCsiConfig",
            "otafl.channels.csi_delay:Delay",
            "the channel of some rounds ago is known",
        ),
    ),
    "receiver": _table(
        "otafl.receivers.config",
        (
            "auto",
            "AutoConfig",
            "otafl.receivers.auto:chosen",
            "the receiver that the power policy is made for",
        ),
        ("scalar", "ScalarConfig", "otafl.receivers.scalar:Scalar", "the first antenna alone"),
        (
            "mrc",
            "MrcConfig",
            "otafl.receivers.mrc:Mrc",
            "maximum-ratio combining of the sum of channels (blind)",
            "Amiri, Duman, Gunduz 2021",
        ),
        (
            "eigen",
            "EigenConfig",
            "otafl.receivers.eigen:Eigen",
            "first eigenvector of the received covariance",
        ),
        (
            "uniform_forcing",
            "UniformForcingConfig",
            "otafl.receivers.uniform_forcing:UniformForcing",
            "best gain of the weakest device",
            "Chen, Qin, Li 2018",
        ),
    ),
    "power": _table(
        "otafl.power.config",
        (
            "none",
            "NoneConfig",
            "otafl.power.none:NoPowerControl",
            "ideal gains: no distortion, noise of the average device",
        ),
        ("full", "FullConfig", "otafl.power.full:Full", "every device at full power"),
        (
            "ci",
            "CiConfig",
            "otafl.power.ci:ChannelInversion",
            "channel inversion by the weakest device",
        ),
        (
            "multi_antenna_ci",
            "MultiAntennaCiConfig",
            "otafl.power.multi_antenna_ci:MultiAntennaCi",
            "channel inversion behind a uniform-forcing receive vector",
            "Chen, Qin, Li 2018",
        ),
        (
            "tci",
            "TciConfig",
            "otafl.power.tci:TruncatedChannelInversion",
            'channel inversion, weak devices silent (FedRLR\'s "CI")',
        ),
        (
            "gbma",
            "GbmaConfig",
            "otafl.power.gbma:Gbma",
            "equal power, phase pre-compensation only",
            "Sery and Cohen 2020",
        ),
        (
            "cotaf",
            "CotafConfig",
            "otafl.power.cotaf:Cotaf",
            "time-varying precoding: the scale follows the updates' power",
            "Sery, Shlezinger, Cohen, Eldar 2021",
        ),
        (
            "cao_static",
            "CaoStaticConfig",
            "otafl.power.cao_static:CaoStatic",
            "least squared error in each fading state, peak power",
            "Cao, Zhu, Xu, Huang 2020",
        ),
        (
            "cao_average",
            "CaoAverageConfig",
            "otafl.power.cao_average:CaoAverage",
            "least squared error over fading, average power",
            "Cao, Zhu, Xu, Huang 2020",
        ),
        (
            "smcv",
            "SmcvConfig",
            "otafl.power.smcv:Smcv",
            "least squared error of symbols that share a mean, peak power",
            "Zhang and Tao 2021",
        ),
        (
            "blind",
            "BlindConfig",
            "otafl.power.blind:Blind",
            "no channel knowledge at the devices, many antennas at the server",
            "Amiri, Duman, Gunduz 2021",
        ),
        (
            "open_loop",
            "OpenLoopConfig",
            "otafl.power.open_loop:OpenLoop",
            "fractional path-loss compensation",
            "3GPP TS 38.213, 7.1.1",
        ),
    ),
    "transport": _table(
        "otafl.transport.config",
        ("ideal", "IdealConfig", "otafl.transport.ideal:Ideal", "error-free"),
        (
            "over_the_air",
            "OverTheAirConfig",
            "otafl.transport.over_the_air:OverTheAir",
            "analog superposition: all devices at once on the same symbols",
        ),
        (
            "digital",
            "DigitalConfig",
            "otafl.transport.digital:Digital",
            "orthogonal access (TDMA, OFDMA) at the Shannon rate or by 3GPP's MCS tables",
        ),
    ),
    "server": _table(
        "otafl.server.config",
        ("average", "AverageConfig", "otafl.server.optimisers:Average", "the method's own step"),
        (
            "momentum",
            "MomentumConfig",
            "otafl.server.optimisers:Momentum",
            "FedAvgM: momentum over the averaged increments",
            "Hsu, Qi, Brown 2019",
        ),
        *(
            (
                name,
                config,
                "otafl.server.optimisers:Adaptive",
                f"{what} over the averaged increments",
                "Reddi et al. 2021",
            )
            for name, config, what in (
                ("adagrad", "AdagradConfig", "FedAdagrad: Adagrad"),
                ("adam", "AdamConfig", "FedAdam: Adam"),
                ("yogi", "YogiConfig", "FedYogi: Yogi"),
            )
        ),
    ),
    "downlink": _table(
        "otafl.transport.config",
        ("ideal", "IdealDownlinkConfig", "otafl.transport.downlink:IdealDownlink", "error-free"),
        (
            "analog",
            "AnalogDownlinkConfig",
            "otafl.transport.downlink:AnalogDownlink",
            "uncoded broadcast, a noise of its own at each device",
            "Amiri, Gunduz, Kulkarni, Poor 2022",
        ),
    )
    | _table(
        "otafl.transport.config_subset",
        (
            "random_subset",
            "RandomSubsetDownlinkConfig",
            "otafl.transport.downlink_subset:RandomSubsetDownlink",
            "a random subset of the model, fresh for each device and round",
            "Wang et al., TDPFed",
        ),
    ),
    "selection": _table(
        "otafl.selection.config",
        (
            "uniform",
            "UniformSelectionConfig",
            "otafl.selection.uniform:Uniform",
            "uniformly, without replacement",
        ),
        (
            "round_robin",
            "RoundRobinSelectionConfig",
            "otafl.selection.round_robin:RoundRobin",
            "in turn",
        ),
        (
            "best_channel",
            "BestChannelSelectionConfig",
            "otafl.selection.best_channel:BestChannel",
            "the largest channel gains",
            "Knopp and Humblet 1995",
        ),
        (
            "proportional_fair",
            "ProportionalFairSelectionConfig",
            "otafl.selection.proportional_fair:ProportionalFair",
            "the largest rates relative to each device's average",
            "Viswanath, Tse, Laroia 2002",
        ),
        (
            "threshold",
            "ThresholdSelectionConfig",
            "otafl.selection.threshold:Threshold",
            "all devices with channels that are good enough",
        ),
        (
            "update_norm",
            "UpdateNormSelectionConfig",
            "otafl.selection.update_norm:UpdateNorm",
            "all train, the largest updates are sent",
            "Amiri, Gunduz, Kulkarni, Poor 2021",
        ),
    ),
    "codec": _table(
        "otafl.codecs.config",
        ("identity", "IdentityConfig", "otafl.codecs.identity:Identity", "the payload as it is"),
        (
            "uniform",
            "UniformConfig",
            "otafl.codecs.uniform:Uniform",
            "uniform quantisation of each block",
        ),
        (
            "qsgd",
            "QsgdConfig",
            "otafl.codecs.qsgd:Qsgd",
            "unbiased stochastic quantisation",
            "Alistarh et al. 2017",
        ),
        (
            "topk",
            "TopKConfig",
            "otafl.codecs.topk:TopK",
            "the largest magnitudes, with error feedback",
            "Stich, Cordonnier, Jaggi 2018",
        ),
        (
            "random_subset",
            "RandomSubsetConfig",
            "otafl.codecs.random_subset:RandomSubset",
            "a random subset of the payload, fresh for each device and round",
            "Wang et al., TDPFed",
        ),
        (
            "obda",
            "ObdaConfig",
            "otafl.codecs.obda:Obda",
            "signs and their majority vote (one-bit aggregation)",
            "Zhu, Du, Gunduz, Huang 2021",
        ),
        (
            "compressed_sensing",
            "CompressedSensingConfig",
            "otafl.codecs.compressed_sensing:CompressedSensing",
            "random projections of sparse updates, recovered by AMP",
            "Amiri and Gunduz 2020",
        ),
        (
            "matrix_sensing",
            "MatrixSensingConfig",
            "otafl.codecs.matrix_sensing:MatrixSensing",
            "one side of each weight matrix measured, columns recovered by AMP",
            "Donoho et al. 2009",
        ),
    ),
    "compute": _table(
        "otafl.clock_config",
        ("fixed", "FixedComputeConfig", _SPEEDS, "all devices equally fast"),
        ("lognormal", "LognormalComputeConfig", _SPEEDS, "speeds drawn from a lognormal law"),
        ("classes", "ClassesComputeConfig", _SPEEDS, "devices of several kinds"),
        (
            "phone",
            "PhoneComputeConfig",
            _SPEEDS,
            "smartphones, clock uniform over 1 to 2 GHz",
            "Yang et al. 2021",
        ),
    ),
}
"""Table -> name -> entry. Most tables are a section of a scenario; `partition` is `data.partition`
and `compute` is `devices.compute`."""

CUSTOM = {
    "data": "otafl.data.config:CustomDataConfig",
    "model": "otafl.models.config:CustomModelConfig",
    "power": "otafl.power.config:CustomPowerConfig",
}
"""Tables that also take `module:callable` of the user's own, and the settings class of that."""

NOUNS = {"data": "data set", "power": "power policy", "server": "server optimiser"}
