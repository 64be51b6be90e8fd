"""Models, built of attention and layers; every translator keeps the contract in `encoder_decoder`."""
