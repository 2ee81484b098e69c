"""The tables of `otafl.core.registry`: what a scenario can name, with its settings class,
implementation, one line and citation. Nothing here is imported by naming it."""

from __future__ import annotations

from otafl.core.registry_devices import DEVICES
from otafl.core.registry_entry import Entry, table
from otafl.core.registry_learning import LEARNING

_SYSTEM: dict[str, dict[str, Entry]] = {
    "channel": table(
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
    | table(
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
    "csi": table(
        "otafl.channels.config",
        ("perfect", "PerfectCsiConfig", "otafl.csi.csi:PerfectCsi", "h is known"),
        ("error", "ErrorCsiConfig", "otafl.csi.csi:ErrorCsi", "h is known with an error"),
        (
            "pilots",
            "PilotsCsiConfig",
            "otafl.csi.pilots:Pilots",
            "estimates from pilots, least squares or MMSE",
        ),
        (
            "phase_feedback",
            "PhaseFeedbackCsiConfig",
            "otafl.csi.phase_feedback:PhaseFeedback",
            "the phase is known to so many bits",
        ),
        (
            "delay",
            "DelayCsiConfig",
            "otafl.csi.delay:Delay",
            "the channel of some rounds ago is known",
        ),
    ),
    "receiver": table(
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
    "power": table(
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
        (
            "budget_paced",
            "BudgetPacedConfig",
            "otafl.power.budget_paced:BudgetPaced",
            "truncated inversion, the energy left paced over the slots ahead",
            "after Zhu, Wang, Huang 2020",
        ),
        (
            "lyapunov",
            "LyapunovConfig",
            "otafl.power.lyapunov:Lyapunov",
            "least squared error under average energy by drift plus penalty",
            "Neely 2010",
        ),
    ),
    "transport": table(
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
    "server": table(
        "otafl.server.config",
        (
            "average",
            "AverageConfig",
            "otafl.server.optimisers:Average",
            "the method's own step",
        ),
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
    "downlink": table(
        "otafl.transport.config",
        (
            "ideal",
            "IdealDownlinkConfig",
            "otafl.downlink.downlink:IdealDownlink",
            "error-free",
        ),
        (
            "analog",
            "AnalogDownlinkConfig",
            "otafl.downlink.downlink:AnalogDownlink",
            "uncoded broadcast, a noise of its own at each device",
            "Amiri, Gunduz, Kulkarni, Poor 2022",
        ),
    )
    | table(
        "otafl.downlink.config_subset",
        (
            "random_subset",
            "RandomSubsetDownlinkConfig",
            "otafl.downlink.random_subset:RandomSubsetDownlink",
            "a random subset of the model, fresh for each device and round",
            "Wang et al., TDPFed",
        ),
    )
    | table(
        "otafl.downlink.config",
        (
            "digital",
            "DigitalDownlinkConfig",
            "otafl.downlink.digital:DigitalDownlink",
            "packets to all or to each, at a given rate or the channel's, lost and sent again",
            "Tse and Viswanath 2005",
        ),
    ),
    "codec": table(
        "otafl.codecs.config",
        (
            "identity",
            "IdentityConfig",
            "otafl.codecs.identity:Identity",
            "the payload as it is",
        ),
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
}

TABLES = LEARNING | _SYSTEM | DEVICES
"""Table -> name -> entry. Most tables are a section of a scenario; `partition` is `data.partition`
and `selection`, `levels`, `compute`, `protocol`, `availability` and `frequency` are below
`devices`."""

CUSTOM = {
    "algorithm": "otafl.algorithms.config_own:CustomAlgorithmConfig",
    "channel": "otafl.channels.config_own:CustomChannelConfig",
    "data": "otafl.data.config:CustomDataConfig",
    "model": "otafl.models.config:CustomModelConfig",
    "power": "otafl.power.config:CustomPowerConfig",
}
"""Tables that also take `module:callable` of the user's own, and the settings class of that."""

NOUNS = {"data": "data set", "power": "power policy", "server": "server optimiser"}
