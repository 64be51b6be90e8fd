"""Multi30k: image captions in English, German, French and Czech.

Elliott et al. 2016 (arXiv:1605.00459), Elliott et al. 2017 (arXiv:1710.07177), Barrault et al. 2018. It has 29,000
training lines, 1,014 validation lines and 1,000 test lines; equal line numbers refer to the same image. It is for
research use; for the terms, see https://github.com/multi30k/dataset.
"""

import gzip
import hashlib
import http.client
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from attent.errors import DataError, reraise

# Checksums ensure that any state of the repository gives exactly these texts or an error.
COMMIT = "c40b37b23d6387214f8ab37335b5a8672b9745f2"
URL = "https://raw.githubusercontent.com/multi30k/dataset/{ref}/data/task1/{path}"
REFS = (COMMIT, "master")
SECONDS = 60.0

# The SHA-256 of each text (the uncompressed file).
RAW = {
    "test_2016_flickr.cs": "45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    "train.cs": "2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "val.cs": "d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
}
# Lower-cased, normalized and tokenized; published scores are measured on these. The repository has them uncompressed.
TOKENIZED = {
    "test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "test_2016_flickr.lc.norm.tok.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
    "train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "train.lc.norm.tok.fr": "8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1",
    "val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "val.lc.norm.tok.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
}
FILES = {f"{name}.gz": digest for name, digest in RAW.items()} | {
    f"tok/{name}.gz": digest for name, digest in TOKENIZED.items()
}


def multi30k(
    to: Path | str, source: Path | str | None = None, progress: Callable[[str], None] = lambda name: None
) -> list[Path]:
    """Download or copy Multi30k to a folder.

    The folder gets the raw texts and, in `tok/`, the tokenized ones, each gzipped and verified by its SHA-256. Existing
    correct files are kept.

    Args:
        to: the folder; created if it does not exist.
        source: a folder that contains the files; by default they are downloaded.
        progress: called with the name of each file to fetch.

    Returns:
        The files.

    Raises:
        DataError: a file is not available or has another checksum; wrong files are never written to the folder.
    """
    to = Path(to)
    for name, digest in FILES.items():
        path = to / name
        if path.is_file() and _digest(path.read_bytes()) == digest:
            continue
        progress(name)
        content = _download(name, digest) if source is None else _copy(Path(source) / name, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.part")
        draft.write_bytes(content)
        draft.replace(path)
    return [to / name for name in FILES]


def _copy(path: Path, digest: str) -> bytes:
    with reraise(DataError, f"{path} cannot be read", OSError):
        content = path.read_bytes()
    if (actual := _digest(content)) != digest:
        raise DataError(f"{path} is not Multi30k's: the SHA-256 of its text must be {digest}, got {actual}")
    return content


def _download(name: str, digest: str) -> bytes:
    is_tokenized = name.startswith("tok/")
    reason = ""
    for ref in REFS:
        url = URL.format(ref=ref, path=name.removesuffix(".gz") if is_tokenized else f"raw/{name}")
        try:
            with urlopen(url, timeout=SECONDS) as response:
                content = response.read()
        except (URLError, http.client.HTTPException, OSError) as error:
            reason = reason or f"{url} cannot be downloaded: {getattr(error, 'reason', None) or error}"
            continue
        content = gzip.compress(content, mtime=0) if is_tokenized else content
        if (actual := _digest(content)) == digest:
            return content
        reason = f"{url} has changed: the SHA-256 of its text must be {digest}, got {actual}"
    raise DataError(f"{reason} (alternatively, name a folder that has the files)")


def _digest(content: bytes) -> str:
    try:
        return hashlib.sha256(gzip.decompress(content)).hexdigest()
    except (OSError, EOFError, zlib.error):
        return "no gzip file"
