"""The tables of data sets, partitions, models and algorithms, for `otafl.core.registry_tables`."""

from __future__ import annotations

from otafl.core.registry_entry import Entry, table

LEARNING: dict[str, dict[str, Entry]] = {
    "data": table(
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
    "partition": table(
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
    | table(
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
    "model": table(
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
    | table(
        "otafl.models.vgg8",
        (
            "vgg8",
            "Vgg8Config",
            "otafl.models.cnn:Cnn",
            "five 3x3 convolutions and three fully connected layers",
            "Wang et al., TDPFed",
        ),
    )
    | table(
        "otafl.models.config_network",
        (
            "conv_net",
            "ConvNetConfig",
            "otafl.models.conv_net:ConvNet",
            "small network of 3x3 convolutions with normalisation and max-pooling",
        ),
        (
            "resnet",
            "ResNetConfig",
            "otafl.models.resnet:ResNet",
            "residual network of any depth and width for small images",
            "He et al. 2016",
        ),
        (
            "resnet18",
            "ResNet18Config",
            "otafl.models.resnet:ResNet",
            "ResNet-18 for small images",
            "He et al. 2016",
        ),
        (
            "resnet34",
            "ResNet34Config",
            "otafl.models.resnet:ResNet",
            "ResNet-34 for small images",
            "He et al. 2016",
        ),
        (
            "vgg",
            "VggConfig",
            "otafl.models.vgg:Vgg",
            "VGG of any depth and width with normalisation, for small images",
            "Simonyan and Zisserman 2015",
        ),
        (
            "vgg11",
            "Vgg11Config",
            "otafl.models.vgg:Vgg",
            "VGG11 with normalisation, for small images",
            "Simonyan and Zisserman 2015",
        ),
        (
            "vgg16",
            "Vgg16Config",
            "otafl.models.vgg:Vgg",
            "VGG16 with normalisation, for small images",
            "Simonyan and Zisserman 2015",
        ),
    ),
    "algorithm": table(
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
    | table(
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
    | table(
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
    | table(
        "otafl.algorithms.config_tensor",
        (
            "tdpfed",
            "TDPFedConfig",
            "otafl.algorithms.tdpfed:TDPFed",
            "personal models drawn to CP-factorised ones, of which only the factors travel",
            "Wang et al., TDPFed",
        ),
    )
    | table(
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
    | table(
        "otafl.algorithms.config_asynchronous",
        (
            "fedasync",
            "FedAsyncConfig",
            "otafl.algorithms.fedasync:FedAsync",
            "every model that arrives is mixed in, the less the staler it is",
            "Xie, Koyejo, Gupta 2020",
        ),
        (
            "fedbuff",
            "FedBuffConfig",
            "otafl.algorithms.fedbuff:FedBuff",
            "a buffer of increments, weighed by staleness, and a step once it is full",
            "Nguyen et al. 2022",
        ),
    )
    | table(
        "otafl.algorithms.config_fedhm",
        (
            "fedhm",
            "FedHmConfig",
            "otafl.algorithms.fedhm:FedHm",
            "each device trains the server's model truncated to the rank that it can afford",
            "Yao et al., FedHM",
        ),
    )
    | table(
        "otafl.algorithms.config_widths",
        (
            "heterofl",
            "HeteroFLConfig",
            "otafl.algorithms.heterofl:HeteroFL",
            "each device trains the first channels of every layer, as many as it can",
            "Diao, Ding, Tarokh 2021",
        ),
        (
            "fedrolex",
            "FedRolexConfig",
            "otafl.algorithms.fedrolex:FedRolex",
            "HeteroFL with a window of channels that rolls on from round to round",
            "Alam et al. 2022",
        ),
        (
            "split_mix",
            "SplitMixConfig",
            "otafl.algorithms.split_mix:SplitMix",
            "independent narrow networks, mixed: each device trains as many as it can",
            "Hong et al. 2022",
        ),
    )
    | table(
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
}
