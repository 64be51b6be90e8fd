"""A Transformer that starts from one with another number of layers."""

from __future__ import annotations

import torch

from attent.models.transformer import Transformer


@torch.no_grad()
def copy_by_depth(model: Transformer, start: Transformer) -> None:
    """Copy the weights of a Transformer of the same sizes, each layer's from the one at its relative depth.

    Layer l of L takes those of layer ⌊(l + ½) L′ / L⌋ of L′: some are left out, or taken twice.

    Source: Shleifer & Rush (2020), §3.1, arXiv 2010.13002; Gong et al. (2019), ICML (stacking).

    Args:
        model: its weights are replaced.
        start: a Transformer with the same settings but for encoder_layers and decoder_layers.
    """
    for stack, start_stack in ((model.encoder, start.encoder), (model.decoder, start.decoder)):
        for number, layer in enumerate(stack.layers):
            source = start_stack.layers[(2 * number + 1) * len(start_stack.layers) // (2 * len(stack.layers))]
            layer.load_state_dict(source.state_dict())
    outside = {name: tensor for name, tensor in start.state_dict().items() if ".layers." not in name}
    model.load_state_dict(outside, strict=False)
