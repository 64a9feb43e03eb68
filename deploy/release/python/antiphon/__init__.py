"""Starts the program `antiphon` of this package, with the models and libraries that other installed packages have.

It imports none of them: it looks where they are. Models that are used as they are become links in a folder of the user's cache;
Whisper is converted into it once. What cannot be had is named on stderr, and the hub starts without it."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "bin/antiphon"
# The packages that hold Whisper base in parts, and what `antiphon models import` makes of them.
WHISPER_PARTS = @WHISPER_PARTS@
WHISPER_MODEL = "whisper-base"
# What is in the cache is made again for another set of packages.
LAYOUT = "@LAYOUT@"


def complain(text):
    print(f"antiphon: {text}", file=sys.stderr)


def package_folder(name):
    """Where a package is installed; None: it is not."""
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec else None
    return pathlib.Path(places[0]) if places else None


def link_files(source, target):
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file():
            (target / path.name).symlink_to(path)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "antiphon" / "models"


def convert_whisper(parts, folder):
    complain("converting Whisper, once")
    environment = {**os.environ, "ANTIPHON_MODELS__DIR": str(folder)}
    command = [PROGRAM, "models", "import", "--json", *parts]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        complain("Whisper could not be converted (see above): the hub hears nobody")


def is_made(mark, made_from):
    return mark.is_file() and mark.read_text() == made_from


def models_folder():
    """The folder of the installed models, made where it is not there yet; None: there are none, or it cannot be made."""
    hibari = package_folder("hibari")
    parts = [package_folder(name) for name in WHISPER_PARTS]
    is_whisper = all(parts)
    sources = [str(HERE), str(hibari), *(str(part) for part in parts if is_whisper)]
    folder = cache_folder()
    mark = folder / "made-from"
    made_from = "\n".join([LAYOUT, *sources])
    try:
        if is_made(mark, made_from):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Made beside it and put in place at once: another process may be doing the same.
        new = pathlib.Path(tempfile.mkdtemp(prefix="models-", dir=folder.parent))
        try:
            link_files(HERE / "models/silero-vad", new / "silero-vad")
            if hibari:
                link_files(hibari / "assets", new / "hibari")
            if is_whisper:
                convert_whisper(parts, new)
            complete = not is_whisper or (new / WHISPER_MODEL).is_dir()
            if complete:
                (new / mark.name).write_text(made_from)
            # What another process has put there meanwhile may be in use.
            if not is_made(mark, made_from):
                shutil.rmtree(folder, ignore_errors=True)
                new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return folder
    except OSError as error:
        complain(f"the installed models are not used: {error}; XDG_CACHE_HOME names another folder for them")
        return None


def main():
    """Replaces this process by the program."""
    environment = os.environ
    asks_only = not {"-h", "--help", "-V", "--version"}.isdisjoint(sys.argv[1:])
    if not asks_only and "ANTIPHON_MODELS__SHIPPED_DIR" not in environment:
        folder = models_folder()
        if folder:
            environment["ANTIPHON_MODELS__SHIPPED_DIR"] = str(folder)
    runtime = package_folder("onnxruntime")
    if runtime and "ORT_DYLIB_PATH" not in environment:
        environment["ORT_DYLIB_PATH"] = str(runtime / "capi")
    try:
        os.execv(PROGRAM, ["antiphon", *sys.argv[1:]])
    except OSError as error:
        complain(f"{PROGRAM} cannot be started: {error}; this package is for @PLATFORM@")
        sys.exit(1)
