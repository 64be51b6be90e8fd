"""A trained captioner: it puts pictures into words, and shows the regions that it attends to."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attent.attention.maps.attention_map import LabelledMap
from attent.errors import ArgumentError, DataError
from attent.layers.patches import patch_grid
from attent.models.model import EncoderDecoder
from attent.runs.config import DType
from attent.search.constraints import Constraints
from attent.search.search import Hypothesis, search
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.classification.classifier import as_pictures
from attent.tasks.classification.inputs import INPUTS, Inputs, PictureInputs, PictureRows
from attent.tasks.classification.pictures import Pictures
from attent.tasks.from_run import FromRun, load_tool
from attent.tasks.translation.translator import EOS_LABEL, forced_maps, label_translation_maps, labels
from attent.text.tokenizer import EOS, Tokenizer
from attent.views.build_scene import build_scene, patch_names
from attent.views.scene import Picture, Scene
from attent.views.trace import ForwardPass

# The number of pictures in a batch of a search.
BATCH = 128


class Captioner(FromRun):
    """Puts pictures into words.

    Args:
        model: reads vectors; switched to evaluation mode.
        inputs: the preprocessing of pictures.
        tokenizer: the tokenizer of captions.
    """

    input_kind = "pictures"

    def __init__(self, model: EncoderDecoder[Any], inputs: PictureInputs, tokenizer: Tokenizer) -> None:
        self.model, self.inputs, self.tokenizer = model.eval(), inputs, tokenizer
        self.device, self.grid = next(model.parameters()).device, patch_grid(inputs.height, inputs.width, inputs.patch)

    def caption(self, pictures: Any, settings: SearchSettings = GREEDY) -> list[str]:
        """Return the caption of each picture.

        Args:
            pictures: a picture file, or a list of them; or pictures (N, H, W) or (N, H, W, C), bytes or floats from 0
                to 1.
            settings: search settings; captions are not sampled.

        Raises:
            ArgumentError: the pictures are neither, are an array of another size, or the settings ask for samples.
            DataError: a picture cannot be read.
        """
        if settings.sample:
            raise ArgumentError("captions are not sampled: set a beam")
        rows, best = PictureRows(self.data(pictures), self.inputs), list[list[Hypothesis]]()
        for part in np.split(np.arange(len(rows.lengths)), range(BATCH, len(rows.lengths), BATCH)):
            source, lengths = rows.read(part, None).to(self.device), torch.from_numpy(rows.lengths[part])
            limits = torch.from_numpy(settings.limits(rows.lengths[part], self.model.longest)).to(self.device)
            shortest, ngram = settings.minimum_length, settings.no_repeat_ngram
            constraints = Constraints.of(limits, minimum_length=shortest, no_repeat_ngram=ngram)
            best += search(self.model, source, lengths.to(self.device), constraints, settings)
        return [self.tokenizer.decode(hypotheses[0].tokens) for hypotheses in best]

    def data(self, pictures: Any) -> Pictures:
        """Convert pictures, as for `caption`, to the size that the run reads; raises the same errors."""
        return as_pictures([pictures] if isinstance(pictures, str | Path) else pictures, self.inputs)

    @torch.no_grad()
    def map(self, picture: Any, caption: str | None = None, *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of one caption, by module name, in the order of computation.

        Rows of the cross-attention are labeled with the words, columns with the patches, row by row from the top.

        Args:
            picture: a file, or an array with one picture, as for `caption`.
            caption: the caption to show; the model's own by default.
            gradients: whether to include each map's weights multiplied by the gradients of the caption's
                log-probability with respect to them.

        Raises:
            ArgumentError: there is not exactly one picture, or as for `caption`.
            DataError: the picture cannot be read.
        """
        data = self.data(picture)
        if len(data) != 1:
            raise ArgumentError(f"a map is of one picture, got {len(data)}")
        text = self.caption(data)[0] if caption is None else caption
        rows, tokens = PictureRows(data, self.inputs), self.tokenizer.encode(text)
        source, lengths = rows.read(np.zeros(1, int), None), torch.from_numpy(rows.lengths)
        encode = partial(self.model.encode, source.to(self.device), lengths.to(self.device))
        maps, derived = forced_maps(self.model, encode, [*tokens, EOS], gradients=gradients)
        words = (*self.tokenizer.pieces(text, tokens), EOS_LABEL)
        patches = patch_names(Picture(data.pixels[0], self.grid, before=0))
        return label_translation_maps(maps, (*patches,), words, derived)

    def scene(self, picture: Any, caption: str | None = None, *, title: str = "", gradients: bool = False) -> Scene:
        """Build the scene of the attention to a picture; arguments and errors as for `map`."""
        data = self.data(picture)
        maps, over = (
            self.map(data, caption, gradients=gradients),
            Picture(data.pixels[0], self.grid, "source", before=0),
        )
        return build_scene(maps, title=title or str(picture), picture=over)

    def forward_pass(self, picture: str) -> ForwardPass:
        """Return the forward pass of the caption of a picture file; errors as for `map`."""
        (text,) = self.caption(picture)
        return ForwardPass(
            f"{picture} → {text}",
            self.model,
            partial(self.map, picture, text),
            "decoder",
            lambda token: labels(self.tokenizer, [token])[0],
            "words",
        )


def load(
    path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> Captioner:
    """Load the captioner of a run folder.

    Raises:
        ArgumentError: the model cannot be computed here with weights of this type.
        DataError: its preprocessing is missing or damaged.
        RunError: the folder is missing, damaged or written by a newer version, or it is a run of another task.
    """
    return load_tool(
        path,
        "caption",
        lambda run: Captioner(run.model, picture_inputs(run.files), run.tokenizers["target"]),
        device,
        trust_code=trust_code,
        dtype=dtype,
    )


def picture_inputs(files: Mapping[str, str]) -> PictureInputs:
    """Return the preprocessing in a run's files, by name.

    Raises:
        DataError: it is missing, damaged, or not of pictures.
    """
    inputs = Inputs.read(files.get(INPUTS, "")).inputs
    if not isinstance(inputs, PictureInputs):
        raise DataError(f"{INPUTS} is damaged: it must say how pictures are read, got {inputs.kind}")
    return inputs
