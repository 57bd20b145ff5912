"""Augmentation of images. A batch gets several randomly changed views of each image."""

import torch
from torch import Tensor

from settings.types import NonNegativeInt, PositiveInt


class RandomShift:
    """Shifts images at random, repeating their borders (DrQ, arXiv 2004.13649).

    All frames of a stack are shifted alike, by up to `pad` pixels, and each row and view by its own shift. Targets are
    means over the views of the next observation; the critics' losses are summed over the views of the observation.
    """

    def __init__(self, pad: NonNegativeInt = 4, num_views: PositiveInt = 2):
        self.pad = pad
        self.num_views = num_views

    def __call__(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Returns shifted images, view after view, (num_views * B, C, H, W), channels last in memory.

        Args:
            images: (B, C, H, W), of any dtype.
            uniform: numbers in [0, 1), (2, num_views, B), that choose among the 2 pad + 1 shifts down and across.
        """
        count, channels, height, width = images.shape
        down, across = (uniform * (2 * self.pad + 1)).long().unsqueeze(-1) - self.pad  # (num_views, B, 1) each
        rows, columns = (torch.arange(size, device=images.device) for size in (height, width))
        rows, columns = (rows + down).clamp(0, height - 1), (columns + across).clamp(0, width - 1)
        image = torch.arange(count, device=images.device)[:, None]
        pixel = ((image * height + rows) * width).unsqueeze(-1) + columns.unsqueeze(-2)  # (num_views, B, H, W)
        # Gathering pixels with all their channels is four times as fast on a CPU as gathering single elements.
        pixels = images.permute(0, 2, 3, 1).reshape(-1, channels)
        shifted = pixels.index_select(0, pixel.flatten())
        return shifted.view(self.num_views * count, height, width, channels).permute(0, 3, 1, 2)
