"""Fixtures for all tests: one thread, one seed, the folder of corpora, and a browser."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import hypothesis
import numpy
import pytest
import torch
from jaxtyping import install_import_hook

# Modules whose signatures are checked for shapes while tests run. Public functions are not among them: they raise their
# own errors, and graph compilers cannot trace the checker.
TYPED = ("attent.layers.embeddings", "attent.models.transformer_layers", "attent.training.loss", "attent.search.search")
install_import_hook(TYPED, "beartype.beartype")

# Triton reads the variable when a kernel is defined, so the kernels are imported before anything imports Triton.
if find_spec("triton") is not None and not torch.cuda.is_available():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import_module("attent.ops.tanh_score.triton.tiles")

if TYPE_CHECKING:
    from attent.tasks.fill_mask.fill_mask import FillMask
    from attent.tasks.text_generation.text_generator import TextGenerator

ROOT = Path(__file__).parents[1]
STARTED = time.monotonic()
TEXT = ["the dog was tired , so it slept .", "the cat was happy .", "the dog slept ."] * 3

# The tests' tensors are so small that a second thread costs more than it brings.
torch.set_num_threads(1)

# Background jobs of a shell ignore Ctrl-C, and so would the commands that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("attent", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("attent")

SMALL = """
[dates]
locales = ["en", "fr"]
training_pairs = 64
validation_pairs = 8
held_out_dates = 20
held_out_pairs = 8
held_out_combinations = 2

[model]
encoder_layers = 2
decoder_layers = 2
width = 8
feed_forward = 8
heads = 2
dropout = 0.0

[training]
updates = 2
batch_pairs = 8
precision = "float32"
"""


@pytest.fixture
def compile_whole() -> Callable[..., tuple[Any, Callable[[], list[list[str]]]]]:
    """A function that compiles another into one graph, and returns it with a function that lists our operators in it.

    There is a list for each graph that holds anything.
    """
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.compiler.reset()

    def compiled(
        function: Any, backend: str = "aot_eager", **options: Any
    ) -> tuple[Any, Callable[[], list[list[str]]]]:
        counter = CompileCounterWithBackend(backend)

        def operators() -> list[list[str]]:
            graphs = [[str(node.target) for node in graph.graph.nodes] for graph in counter.graphs]
            return [[name for name in graph if name.startswith("attent.")] for graph in graphs if graph]

        return torch.compile(function, backend=counter, fullgraph=True, **options), operators

    return compiled


@pytest.fixture
def filler() -> FillMask:
    """A small, untrained masked language model."""
    # after the import hook
    from attent.models.encoder import EncoderModel
    from attent.models.settings import EncoderSettings
    from attent.tasks.fill_mask.fill_mask import FillMask
    from attent.text.tokenizers import learn

    torch.manual_seed(3)
    tokenizer = learn("word", TEXT)
    settings = EncoderSettings(layers=2, width=8, feed_forward=7, heads=2, position="rotary")
    return FillMask(EncoderModel(settings, tokenizer.size + 1, tokenizer.size), tokenizer)


@pytest.fixture
def generator() -> TextGenerator:
    """A small, untrained language model."""
    # after the import hook
    from attent.models.language_model import LanguageModel
    from attent.models.settings import DecoderSettings
    from attent.tasks.text_generation.text_generator import TextGenerator
    from attent.text.tokenizers import learn

    torch.manual_seed(3)
    tokenizer = learn("word", TEXT)
    settings = DecoderSettings(layers=2, width=12, feed_forward=7, heads=2, position="rotary")
    return TextGenerator(LanguageModel(settings, tokenizer.size, tokenizer.size), tokenizer)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for machines that are too slow for all tests."""
    text = "skip the tests whose turn comes more than so many seconds after the start"
    parser.addoption("--seconds", type=float, default=float("inf"), help=text)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests for which `--seconds` leaves no time, and those marked as needing what this machine lacks."""
    if time.monotonic() - STARTED > float(item.config.getoption("--seconds") or 0):
        pytest.skip("no time left: --seconds")
    # after the import hook
    from attent.ops import native

    # found once, before a test hides the library
    native.simd_level()
    if item.get_closest_marker("needs_native") and native.library() is None:
        pytest.skip("no extension: attent was installed without a compiler")
    if item.get_closest_marker("needs_amx") and not native.has_amx():
        pytest.skip("no extension, or no processor with matrix tiles")


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Seed the random generators, so that tests do not depend on their order."""
    random.seed(0)
    numpy.random.seed(0)
    # torch.manual_seed keeps the whole stack of every call for a GPU that nobody has used yet
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(autouse=True, scope="session")
def compiled_graphs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give each process its own folder for compiled graphs.

    Those that share one load libraries that another is still writing.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "inductor")


@pytest.fixture(autouse=True)
def on_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this machine's GPU from tests without the fixture `gpu`."""
    if torch.cuda.is_available() and "gpu" not in request.fixturenames:
        monkeypatch.setattr("attent.devices.devices", lambda: ["cpu"])


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process obey Windows' rules on files, as far as Linux can tell what is open or mapped."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    monkeypatch.setattr("attent.system.IS_LINUX", False)
    monkeypatch.setattr("attent.system.IS_WINDOWS", True)
    monkeypatch.setattr(shutil, "_use_fd_functions", False)
    for name in ("fcntl", "resource"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=lambda *_: None, LK_NBLCK=2))
    kernel = types.SimpleNamespace(GetStdHandle=abs, SetConsoleMode=lambda handle, mode: 0)
    monkeypatch.setattr("ctypes.windll", types.SimpleNamespace(kernel32=kernel), raising=False)
    actual_open, actual_fstat = os.open, os.fstat

    def forbid_in_use(function: Any) -> Any:
        def checked(*paths: Any, **options: Any) -> None:
            in_use = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
            maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
            in_use |= {fields[5] for line in maps if len(fields := line.split(maxsplit=5)) > 5}
            for path in map(os.path.realpath, paths):
                if any(used == path or used.startswith(f"{path}/") for used in in_use):
                    raise PermissionError(13, "Access is denied", path)
            function(*paths, **options)

        return checked

    def open_file(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", path)
        return actual_open(path, *arguments, **options)

    def status_of(descriptor: int) -> Any:
        status = actual_fstat(descriptor)
        fields = {name: getattr(status, name) for name in dir(status) if name.startswith("st_")}
        return types.SimpleNamespace(**{**fields, "st_ctime_ns": 1})

    for name in ("rename", "replace", "unlink"):
        monkeypatch.setattr(os, name, forbid_in_use(getattr(os, name)))
    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "fstat", status_of)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of corpora: ATTENT_DATA, else ../shared/data beside the repository."""
    named = os.environ.get("ATTENT_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no corpora: {folder} is not a folder (ATTENT_DATA names it)")
    return folder


@pytest.fixture(scope="session")
def settings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings file of a run that takes less than a second."""
    file = tmp_path_factory.mktemp("settings") / "small.toml"
    file.write_text(SMALL, encoding="utf-8")
    return file


# The browser sends no requests to other machines: their names do not resolve, and it does not look for updates.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
WIDE, NARROW = (1280, 800), (390, 844)
HERE = {"localhost", "127.0.0.1", "::1"}


class Window:
    """A browser window that records the requests of its pages, and their faults in `wrong`.

    Args:
        browser: Chromium, running.
        pictures: the folder of screenshots.
    """

    def __init__(self, browser: Any, pictures: Path) -> None:
        self._browser, self._pictures = browser, pictures
        self._contexts: list[Any] = []
        self.requests: list[str] = []
        self.wrong: list[str] = []

    def open(self, address: Path | str, *, size: tuple[int, int] = WIDE, dark: bool = False, **more: Any) -> Any:
        """Load an address, and return Playwright's page. `more` goes to its `new_context`, such as has_touch=True."""
        scheme = "dark" if dark else "light"
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce", **more
        )
        self._contexts.append(context)
        context.on("request", lambda request: self._record_request(request.url))
        context.on(
            "console",
            lambda message: self.wrong.append(f"console: {message.text}") if message.type == "error" else None,
        )
        context.on("weberror", lambda event: self.wrong.append(f"error: {event.error}"))
        page = context.new_page()
        page.on("websocket", lambda socket: self._record_request(socket.url))
        page.goto(address.resolve().as_uri() if isinstance(address, Path) else address)
        return page

    def picture(self, page: Any, name: str, *, whole: bool = False) -> Path:
        """Write a screenshot NAME.png, of the visible part or of the whole page, and return its path."""
        path = self._pictures / f"{name}.png"
        page.screenshot(path=path, full_page=whole, animations="disabled")
        return path

    def serious_faults(self, page: Any) -> list[str]:
        """Return what axe-core calls serious or critical on a page; it sees everything that is open."""
        folder = Path(pytest.importorskip("axe_core_python").__file__).parent
        page.evaluate(f"{(folder / 'axe.min.js').read_text(encoding='utf-8')}; 0")
        found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
        return [f"{each['id']}: {each['help']}" for each in found if each["impact"] in ("serious", "critical")]

    def check(self) -> None:
        """Close every page, and fail if there were faults."""
        while self._contexts:
            context = self._contexts.pop()
            for page in context.pages:
                # wait for an answer, since earlier events arrive before it
                page.evaluate("0")
            context.close()
        wrong, self.wrong = self.wrong, []
        assert not wrong, "\n" + "\n".join(wrong)

    def _record_request(self, address: str) -> None:
        self.requests.append(address)
        parts = urlsplit(address)
        if parts.scheme not in {"file", "data", "blob", "about"} and parts.hostname not in HERE:
            self.wrong.append(f"request: {address}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Headless Chromium, which CHROMIUM names or which is on the path.

    Without it, or without playwright, the test is skipped.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no browser: chromium is not on the path (CHROMIUM names it)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def window(chromium: Any, tmp_path: Path) -> Iterator[Window]:
    """A window to open pages in; the test fails if a page has faults.

        page = window.open(path, dark=True)  # a file, or "http://127.0.0.1:8000"; size=(390, 844) is a telephone
        page.hover("text=cat")  # playwright's page: https://playwright.dev/python/docs/api/class-page
        window.picture(page, "cat")  # into the folder that ATTENT_PICTURES names, else into tmp_path

    A fault is an error in the console, an uncaught error, or a request for anything but files, data, blobs and a server
    on this machine. `window.requests` has all requests, `window.wrong` the faults so far. Mark the test slow: a browser
    takes seconds.
    """
    named = os.environ.get("ATTENT_PICTURES")
    opened = Window(chromium, Path(named) if named else tmp_path)
    yield opened
    opened.check()
