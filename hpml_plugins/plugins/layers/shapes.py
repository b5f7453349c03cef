"""The layers, their operations, and the sizes of their inputs."""

LAYERS = ("relu", "maxpool", "conv", "linear")
MODES = ("forward", "training")
#: One image, (channels, height, width), and the numbers that enter VGG16's first linear layer.
IMAGE = (3, 224, 224)
FEATURES = 512 * 7 * 7
OUTPUTS = 4096
