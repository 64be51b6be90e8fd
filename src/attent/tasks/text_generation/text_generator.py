"""A trained language model: it continues texts, scores them, and shows its attention."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import LabelledMap
from attent.errors import ArgumentError, DataError, RunError
from attent.models.language_model import LanguageModel
from attent.runs.config import CONFIG, DType
from attent.runs.folder import Run
from attent.search.settings import GenerationSettings
from attent.tasks.from_run import FromRun, load_tool
from attent.tasks.text_generation.continuation import ContinuesText, TextReader
from attent.tasks.translation.translator import labels, log_likelihood
from attent.text.batches import ROW_MULTIPLE, round_up
from attent.text.settings import LinesSettings
from attent.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from attent.views.trace import ForwardPass

# Tokens that are never generated; EOS can end a text.
FORBIDDEN = [PAD, UNK, BOS]


class TextGenerator(FromRun, ContinuesText):
    """Continues texts with a language model.

    Args:
        model: the model; it is set to evaluation mode.
        tokenizer: splits texts into pieces.
        context: the number of tokens, BOS included, that the model was trained to read at a time; None for no limit. A
            longer text is continued from the second half of its last `context` tokens.
        stops_at_line_end: whether EOS ends a text; if not, it is a line break, as in a model of running text.
    """

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, *, context: int | None = None, stops_at_line_end: bool = True
    ) -> None:
        self.model, self.tokenizer, self.stops_at_line_end = model.eval(), tokenizer, stops_at_line_end
        self.device = next(model.parameters()).device
        limits = [limit for limit in (context, model.longest) if limit is not None]
        self.context = max(min(limits), 2) if limits else None
        self.start, self.forbidden, self.size, self.longest = (BOS,), FORBIDDEN, tokenizer.size, model.longest

    def log_probs(self, tokens: Sequence[int]) -> Tensor:
        """Return log p of each token given those before it, in nats, (T,) float64.

        A text longer than the context is read in windows.
        """
        window = len(tokens) if self.context is None else self.context
        parts = [tokens[begin : begin + window] for begin in range(0, len(tokens), max(window, 1))]
        with torch.inference_mode():
            log_probs = [self._window_log_probs(torch.tensor([part], device=self.device)) for part in parts]
        return torch.cat(log_probs) if log_probs else torch.zeros(0, dtype=torch.float64)

    def map(self, text: str, *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of a text, by the name of its module, in the order of computation.

        Row t belongs to the position that reads token t and predicts the next one.

        Args:
            text: the text.
            gradients: whether to include the weights times the gradients of the text's log-probability with respect to
                them.

        Raises:
            DataError: as for `generate`, or the text has more tokens than the model can read.
        """
        return self.map_of_tokens(self.encode(text), gradients=gradients)

    @torch.no_grad()
    def map_of_tokens(self, tokens: Sequence[int], *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return the attention maps of a text that is given as tokens, without BOS; see `map`."""
        tokens = [BOS, *tokens]
        if self.model.longest is not None and len(tokens) > self.model.longest:
            raise DataError(
                f"the text has {len(tokens)} tokens, more than the {self.model.longest} that this model can read"
            )
        with torch.set_grad_enabled(gradients), watch(self.model, gradients=gradients) as maps:
            features = self.model(torch.tensor([tokens], device=self.device))
            derived = (
                maps.last_gradients(log_likelihood(self.model.output(features)[0, :-1], tokens[1:]))
                if gradients and len(tokens) > 1
                else {}
            )
        labels = self.labels(tokens)
        return {name: LabelledMap(weights, labels, labels, derived.get(name)) for name, weights in maps.items()}

    def forward_pass(self, text: str) -> ForwardPass:
        """Return the forward pass over a text; every position predicts the next token.

        Raises:
            DataError: as for `map`.
        """
        return ForwardPass(
            text, self.model, lambda: self.map(text), "decoder", lambda token: self.labels([token])[0], "tokens"
        )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without BOS; every line except the last ends with EOS.

        Raises:
            DataError: the text has a piece that the vocabulary lacks.
        """
        lines = text.split("\n")
        tokens = [self.tokenizer.encode(line) for line in lines]
        for line, ids in zip(lines, tokens, strict=True):
            if UNK in ids:
                unknown = self.tokenizer.pieces(line)[ids.index(UNK)]
                raise DataError(
                    f"{unknown.strip() or unknown!r} is unknown to this model: its vocabulary lacks the word or sign"
                )
        return [token for number, ids in enumerate(tokens) for token in (([EOS] if number else []) + ids)]

    def labels(self, tokens: Sequence[int]) -> tuple[str, ...]:
        return labels(self.tokenizer, tokens)

    def ends(self, token: int) -> bool:
        return token == EOS and self.stops_at_line_end

    def reader(self) -> TextReader:
        return _StepReader(self.model, self.device)

    def check_prefix(self, prefix: Sequence[int]) -> None:
        excluded = (PAD, BOS, EOS) if self.stops_at_line_end else (PAD, BOS)
        if wrong := [token for token in prefix if token in excluded or not 0 <= token < self.size]:
            raise ArgumentError(f"a prefix must consist of word ids from {UNK} to {self.size - 1}, got {wrong[0]}")

    @torch.no_grad()
    def next_token_probs(self, tokens: Sequence[int]) -> Tensor:
        """Return the probabilities of the token that follows `tokens`, which exclude BOS, (V,)."""
        features = self.model(torch.tensor([[BOS, *tokens]], device=self.device))[0, -1]
        return self.model.output(features[None])[0].double().softmax(-1)

    def _window_log_probs(self, labels: Tensor) -> Tensor:
        inputs = torch.cat([torch.full_like(labels[:, :1], BOS), labels[:, :-1]], 1)
        log_probs = self.model.output(self.model(inputs)[0]).double().log_softmax(-1)
        return log_probs.gather(1, labels[0][:, None])[:, 0].cpu()

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with EOS as a line break; a final EOS is omitted if EOS ends a text."""
        if tokens and tokens[-1] == EOS and self.stops_at_line_end:
            tokens = tokens[:-1]
        runs = groupby(tokens, key=lambda token: token == EOS)
        return "".join("\n" * len(list(run)) if is_break else self.tokenizer.decode(run) for is_break, run in runs)

    @torch.inference_mode()
    def new_tokens(
        self, prompts: Sequence[Sequence[int]], settings: GenerationSettings
    ) -> Iterator[tuple[int, int, float]]:
        """Yield each new token with the index of its text and its log-probability.

        All texts advance together, one token per step.
        """
        texts = [list(prompt) for prompt in prompts for _ in range(settings.copies)]
        lengths = np.array([len(text) for text in texts], np.int64)
        draws = [
            np.random.default_rng([settings.seed, copy, *prompt])
            for prompt in prompts
            for copy in range(settings.copies)
        ]
        active, step, begin = np.arange(len(texts)), 0, 0
        rows = self._fill_up(active)
        state = self.model.start(len(rows))
        while len(active):
            if self.context is not None and step - begin == self.context:
                # the texts have become longer than the context: continue from the end of each
                rows, begin = self._fill_up(active), step - self.context // 2
                state = self.model.start(len(rows))
                for position in range(begin, step):
                    _, state = self.model.step(state, self._inputs(texts, rows, position, begin))
            features, state = self.model.step(state, self._inputs(texts, rows, step, begin))
            writing = np.flatnonzero(lengths[active] <= step)
            finished = list[int]()
            if len(writing):
                indices = active[writing]
                uniform = (
                    torch.tensor([draws[index].random() for index in indices.tolist()], dtype=torch.float64)
                    if settings.sample
                    else None
                )
                log_probs = (
                    self.model.output(features).float().log_softmax(-1)[torch.from_numpy(writing).to(features.device)]
                )
                chosen = self.choose(log_probs, uniform, settings)
                for slot, index, token, log_prob in zip(
                    writing.tolist(),
                    indices.tolist(),
                    chosen.tolist(),
                    log_probs.gather(1, chosen[:, None])[:, 0].tolist(),
                    strict=True,
                ):
                    texts[index].append(token)
                    yield index, token, log_prob
                    if (token == EOS and self.stops_at_line_end) or step + 1 == lengths[
                        index
                    ] + settings.max_new_tokens:
                        finished.append(slot)
            step += 1
            if finished:
                active = np.delete(active, finished)
                if len(active):
                    selected = self._fill_up(np.delete(np.arange(len(active) + len(finished)), finished))
                    state, rows = state.select(torch.from_numpy(selected).to(self.device)), self._fill_up(active)

    def _fill_up(self, rows: np.ndarray) -> np.ndarray:
        """Repeat the last row so that the result of a row does not depend on the number of rows."""
        multiple = 1 if self.model.batch_invariant else ROW_MULTIPLE
        return np.pad(rows, (0, round_up(len(rows), multiple) - len(rows)), "edge") if len(rows) else rows

    def _inputs(self, texts: Sequence[Sequence[int]], rows: np.ndarray, position: int, begin: int) -> Tensor:
        """Return the input tokens at a position: BOS at the beginning of the window, otherwise each text's token."""
        tokens = [BOS if position == begin else texts[row][position - 1] for row in rows.tolist()]
        return torch.tensor(tokens, device=self.device)


class _StepReader:
    def __init__(self, model: LanguageModel, device: torch.device) -> None:
        self._model, self._device = model, device
        self._copies = 1 if model.batch_invariant else ROW_MULTIPLE
        with torch.inference_mode():
            self._state = model.start(self._copies)

    @torch.inference_mode()
    def __call__(self, tokens: Sequence[int]) -> Tensor:
        for token in tokens:
            inputs = torch.full((self._copies,), token, device=self._device)
            features, self._state = self._model.step(self._state, inputs)
        return self._model.output(features)[0].float()  # pyright: ignore[reportPossiblyUnboundVariable]

    def maps(self) -> None:
        return None


def load(
    path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> TextGenerator:
    """Load the language model of a run folder.

    Raises:
        ArgumentError: the model cannot be computed here with weights of this type.
        RunError: the folder is missing, damaged or written by a newer version, or it is a run of another task.
    """
    return load_tool(path, "text-generation", partial(of_run, path), device, trust_code=trust_code, dtype=dtype)


def of_run(path: Path | str, run: Run) -> TextGenerator:
    """Return the language model of a run that was read.

    Raises:
        RunError: the settings of its corpus are damaged.
    """
    try:
        lines = LinesSettings.model_validate(run.config.corpus.get("lines"))
    except ValidationError as error:
        raise RunError(f"{path}/{CONFIG} is damaged: the settings of its corpus cannot be used") from error
    is_by_line = lines.packing == "lines"
    # BOS and a line, or BOS and all tokens of a window except the last
    context = lines.maximum_length + is_by_line
    return TextGenerator(run.model, run.tokenizers["text"], context=context, stops_at_line_end=is_by_line)
