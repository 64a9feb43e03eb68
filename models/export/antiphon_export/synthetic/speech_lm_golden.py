"""Compares the graphs of speech_lm.py with the makers' own PyTorch code, and writes what the tests compare with.

    python -m antiphon_export.synthetic.speech_lm_golden PACKAGE tiny FIXTURES
    python -m antiphon_export.synthetic.speech_lm_golden PACKAGE chatterbox-nano|chatterbox-turbo|chatterbox-multilingual

PACKAGE is the folder `chatterbox` of the unpacked PyPI package chatterbox-tts 0.1.7. The makers' `T3` gets the same
random weights as the graphs and writes speech tokens greedily: Turbo and Nano by the steps of `T3.inference_turbo`,
Multilingual by those of `T3.inference` without classifier-free guidance (the published graphs have none). One thing
differs from `inference_turbo`: the prompt ends with START twice, as the published tokenizer and embeddings have it.
After each step the logits of both sides are compared. Both sides use the repetition penalty 1.2, by the makers'
processor, on the tokens written so far (on START at the first step).

`tiny` writes FIXTURES/golden.json.

Needs torch, transformers 5.2, einops, tqdm, onnx, onnxruntime, tokenizers and numpy; not part of CI.
"""

import dataclasses
import json
import pathlib
import sys
import tempfile
import types
import wave

import numpy
import onnxruntime
import torch

from . import speech_lm

PENALTY = 1.2
STEPS = 40
TEXT = "Hello, how are you? The time is good, and what you can do for that is to have it with them on the day."


def makers(folder):
    """The makers' modules, without the package's own __init__, which imports all of its dependencies."""
    package = types.ModuleType("chatterbox")
    package.__path__ = [str(folder)]
    sys.modules["chatterbox"] = package
    from chatterbox.models.t3 import T3, llama_configs
    from chatterbox.models.t3.modules.cond_enc import T3Cond
    from chatterbox.models.t3.modules.t3_config import T3Config
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    return T3, T3Cond, T3Config, llama_configs.LLAMA_CONFIGS, RepetitionPenaltyLogitsProcessor


def build(f, T3, T3Config, configs, weights):
    """The makers' module in the dimensions of the family, with our weights."""
    hp = T3Config(text_tokens_dict_size=f.text)
    hp.speech_tokens_dict_size = f.speech
    hp.start_speech_token, hp.stop_speech_token = f.start, f.stop
    if f.form == "gpt2":
        # As tts_turbo.py sets them.
        configs[f.name] = dict(
            configs["GPT2_medium"],
            n_embd=f.hidden,
            hidden_size=f.hidden,
            n_head=f.heads,
            n_layer=f.layers,
            n_positions=f.positions,
            n_ctx=f.positions,
            vocab_size=1,
        )
        hp.llama_config_name, hp.input_pos_emb = f.name, None
        hp.speech_cond_prompt_len = f.prompt - 1
        hp.use_perceiver_resampler = hp.emotion_adv = False
    t3 = T3(hp).eval()
    state = {}
    for name, there in t3.state_dict().items():
        # Not in our graphs: unused embeddings, the text head, and the perceiver, which belongs to the voice encoder.
        if any(part in name for part in ("wte", "embed_tokens", "text_head", "perceiver")):
            state[name] = there
        else:
            state[name] = torch.from_numpy(weights.take(name, tuple(there.shape)))
    t3.load_state_dict(state)
    return t3


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


class Ours:
    """The graphs, one step at a time."""

    def __init__(self, folder, f):
        self.f, self.embed, self.model = (
            f,
            session(folder / "embed_tokens.onnx"),
            session(folder / "language_model.onnx"),
        )
        self.ports = [each.name for each in self.model.get_inputs()]
        empty = numpy.zeros((1, f.heads, 0, f.dim), numpy.float32)
        self.past = {name: empty for name in self.ports if name.startswith("past")}
        self.total = 0

    def embeddings(self, ids, positions):
        feeds = {"input_ids": ids}
        if self.f.form == "llama":
            feeds |= {"position_ids": positions, "exaggeration": numpy.array([0.5], numpy.float32)}
        return self.embed.run(None, feeds)[0]

    def step(self, embeddings):
        length = embeddings.shape[1]
        feeds = {"inputs_embeds": embeddings, "attention_mask": numpy.ones((1, self.total + length), numpy.int64)}
        if "position_ids" in self.ports:
            feeds["position_ids"] = numpy.arange(self.total, self.total + length)[None]
        logits, *present = self.model.run(None, feeds | self.past)
        self.total += length
        self.past = dict(zip(self.past, present))
        return logits[0, -1]


@torch.inference_mode()
def compare(f, t3, ours, cond, ids, positions, processor, cond_of_ours=None):
    """Returns the greedy tokens, the first logits, and the largest difference of logits."""
    text = torch.from_numpy(ids[:, :-2] if f.form == "gpt2" else ids[:, 1:-2])
    start = torch.full((1, 1), f.start)
    starts = torch.cat([start, start], dim=1) if f.form == "gpt2" else start
    embeds, _ = t3.prepare_input_embeds(t3_cond=cond, text_tokens=text, speech_tokens=starts)
    if f.form == "llama":
        # T3.inference embeds START once more, at position 0.
        again = t3.speech_emb(start) + t3.speech_pos_emb.get_fixed_embedding(0)
        embeds = torch.cat([embeds, again], dim=1)
    # The prompt is speech, too, but must not count as what was written.
    embeds[:, : f.prompt, speech_lm.COUNT] = 0.0
    features = embeds[:, : f.prompt]
    if cond_of_ours is not None:
        features = cond_of_ours
        embeds = torch.cat([features, embeds[:, f.prompt :]], dim=1)
    x = numpy.concatenate([features.numpy(), ours.embeddings(ids, positions)], axis=1)
    print(f"  prompt of {x.shape[1]} vectors, largest difference {abs(x - embeds.numpy()).max():.1e}")

    tokens, worst, first, past, equal = [], 0.0, None, None, 0
    theirs_in, ours_in = embeds, x
    for step in range(STEPS):
        out = t3.tfmr(inputs_embeds=theirs_in, past_key_values=past, use_cache=True)
        past = out.past_key_values
        theirs = t3.speech_head(out[0][:, -1])
        mine = ours.step(ours_in)
        # The logit of STOP is in the hundreds while there is text left, so only the others are compared.
        worst = max(worst, float(abs(theirs[0].numpy() - mine)[: f.codes].max()))
        if first is None:
            first = theirs[0].numpy()
        # inference_turbo penalizes START at the first step, and later what was written; inference all of it.
        if f.form == "gpt2":
            seen = torch.tensor([tokens or [f.start]])
        else:
            seen = torch.tensor([[f.start, *tokens]])
        token = int(processor(seen, theirs.clone()).argmax())
        equal += token == int(processor(seen, torch.from_numpy(mine)[None].clone()).argmax())
        tokens.append(token)
        if token == f.stop:
            break
        theirs_in = t3.speech_emb(torch.tensor([[token]]))
        if f.form == "llama":
            theirs_in = theirs_in + t3.speech_pos_emb.get_fixed_embedding(step + 1)
        ours_in = ours.embeddings(numpy.array([[token]]), numpy.array([[step + 1]]))
    print(
        f"  {len(tokens)} tokens, {equal} equal; logits {first[: f.codes].std():.2f} (standard deviation), "
        f"largest difference {worst:.1e}"
    )
    return tokens, first, worst, equal == len(tokens)


def read_wave(path):
    with wave.open(str(path)) as sound:
        return numpy.frombuffer(sound.readframes(sound.getnframes()), "<i2").astype(numpy.float32) / 32768


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in speech_lm.FAMILIES:
        sys.exit(__doc__)
    package, f = pathlib.Path(sys.argv[1]), speech_lm.FAMILIES[sys.argv[2]]
    T3, T3Cond, T3Config, configs, Processor = makers(package)
    processor = Processor(PENALTY)
    torch.manual_seed(1)
    tiny = f.name == "tiny"

    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(sys.argv[3]) if tiny else pathlib.Path(made)
        if tiny:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            end = tokenizer.token_to_id("<|endoftext|>")
            f = dataclasses.replace(f, text=end + 1, end=end)
            ids = numpy.array([tokenizer.encode(TEXT).ids])
        elif f.form == "gpt2":
            text = numpy.random.default_rng(2).integers(0, f.end, 30)
            ids = numpy.array([[*text, f.end, f.end]])
        else:
            text = numpy.random.default_rng(2).integers(1, f.text, 30)
            ids = numpy.array(
                [[speech_lm.EXAGGERATION, speech_lm.START_TEXT, *text, speech_lm.STOP_TEXT, f.start, f.start]]
            )
        positions = numpy.where(ids >= f.start, 0, numpy.arange(ids.shape[1])[None] - 1)
        weights = speech_lm.Weights(f)
        if not tiny:
            speech_lm.embed_tokens(folder / "embed_tokens.onnx", f, weights, external=True)
            speech_lm.language_model(folder / "language_model.onnx", f, weights, external=True)
        t3 = build(f, T3, T3Config, configs, weights)
        print(f"{f.name}: {sum(each.numel() for each in t3.parameters()) / 1e6:.1f} million parameters in T3")

        codes = torch.randint(0, f.codes, (1, f.prompt - 1 if f.form == "gpt2" else 150))
        cond = T3Cond(
            speaker_emb=torch.randn(1, 256), cond_prompt_speech_tokens=codes, emotion_adv=0.5 * torch.ones(1, 1, 1)
        )
        features = None
        if tiny:
            audio = read_wave(folder / "reference.wav")
            results = session(folder / "speech_encoder.onnx").run(None, {"audio_values": audio[None]})
            features = torch.from_numpy(results[0])
        tokens, first, worst, equal = compare(f, t3, Ours(folder, f), cond, ids, positions, processor, features)
        if worst > 1e-4 or not equal:
            print("  MORE THAN 1e-4 OR NOT EQUAL")
        if tiny:
            golden = {
                "made_by": "antiphon_export.synthetic.speech_lm_golden: T3 of chatterbox-tts 0.1.7 with these weights",
                "text": TEXT,
                "input_ids": ids[0].tolist(),
                "audio_tokens": results[1][0].tolist(),
                "audio_features": [[round(float(each), 6) for each in row] for row in results[0][0]],
                "repetition_penalty": PENALTY,
                "first_logits": [round(float(each), 6) for each in first],
                "greedy_tokens": tokens,
            }
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(each)}" for key, each in golden.items())
            (folder / "golden.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
