"""`decode` and `frame` against a plain reference in NumPy float64: prefill, ragged batches, caches in place,
drawing."""

import unittest
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime as ort

from antiphon_export.errors import ExportError
from antiphon_export.transformer import FrameConfig, StackConfig, build_decode, build_embed, build_frame

CONFIG = StackConfig(layers=2, hidden=32, heads=4, kv_heads=2, head_size=16, intermediate=48, positions=64)


def random_weights(config, vocabulary=40, seed=0):
    rng = np.random.default_rng(seed)

    def matrix(*shape):
        return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)

    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    weights = {"norm": 1 + matrix(config.hidden), "head": matrix(vocabulary, config.hidden)}
    for i in range(config.layers):
        weights |= {
            f"layers.{i}.input_norm": 1 + matrix(config.hidden),
            f"layers.{i}.post_norm": 1 + matrix(config.hidden),
            f"layers.{i}.q": 3 * matrix(queries, config.hidden),
            f"layers.{i}.k": 3 * matrix(keys, config.hidden),
            f"layers.{i}.v": matrix(keys, config.hidden),
            f"layers.{i}.o": matrix(config.hidden, queries),
            f"layers.{i}.gate": matrix(config.intermediate, config.hidden),
            f"layers.{i}.up": matrix(config.intermediate, config.hidden),
            f"layers.{i}.down": matrix(config.hidden, config.intermediate),
            f"layers.{i}.q_bias": matrix(queries),
            f"layers.{i}.k_bias": matrix(keys),
            f"layers.{i}.v_bias": matrix(keys),
            f"layers.{i}.o_bias": matrix(config.hidden),
            f"layers.{i}.q_norm": 1 + matrix(config.head_size),
            f"layers.{i}.k_norm": 1 + matrix(config.head_size),
        }
    return weights


def reference(config, weights, columns):
    """The residual stream [S, hidden] behind all layers, and that behind the last norm."""

    def norm(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * weights[name]

    def rotate(x):
        half = config.head_size // 2
        angles = np.arange(len(x))[:, None] / config.rope_theta ** (np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        out = np.empty_like(x)
        a, b = (x[..., 0::2], x[..., 1::2]) if config.rope_interleaved else (x[..., :half], x[..., half:])
        first, second = a * cos - b * sin, b * cos + a * sin
        if config.rope_interleaved:
            out[..., 0::2], out[..., 1::2] = first, second
        else:
            out[..., :half], out[..., half:] = first, second
        return out

    x = columns.astype(np.float64)
    length = len(x)
    for i in range(config.layers):
        name = f"layers.{i}"
        h = norm(x, f"{name}.input_norm")
        q, k, v = (h @ weights[f"{name}.{p}"].T.astype(np.float64) for p in "qkv")
        if config.qkv_bias:
            q, k, v = (value + weights[f"{name}.{p}_bias"] for value, p in zip((q, k, v), "qkv"))
        q, k, v = (value.reshape(length, -1, config.head_size) for value in (q, k, v))
        if config.qk_norm:
            q, k = norm(q, f"{name}.q_norm"), norm(k, f"{name}.k_norm")
        q, k = rotate(q), rotate(k)
        k, v = (np.repeat(value, config.heads // config.kv_heads, 1) for value in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / config.head_size**0.5
        scores[:, np.triu_indices(length, 1)[0], np.triu_indices(length, 1)[1]] = -np.inf
        odds = np.exp(scores - scores.max(-1, keepdims=True))
        odds /= odds.sum(-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", odds, v).reshape(length, -1) @ weights[f"{name}.o"].T
        x = x + out + (weights[f"{name}.o_bias"] if config.o_bias else 0)
        h = norm(x, f"{name}.post_norm")
        gate = h @ weights[f"{name}.gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weights[f"{name}.up"].T)) @ weights[f"{name}.down"].T
    return x, norm(x, "norm")


def session(builder, folder, name="graph.onnx"):
    builder.save(Path(folder) / name)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(Path(folder) / name), options, providers=["CPUExecutionProvider"])


def empty_cache(config, rows, columns=0, kind=np.float32, fill=0.0):
    shape = (rows, config.kv_heads, columns, config.head_size)
    return {f"past.{i}.{p}": np.full(shape, fill, kind) for i in range(config.layers) for p in ("key", "value")}


class Decode(unittest.TestCase):
    VARIANTS = [
        CONFIG,
        replace(CONFIG, qk_norm=True),
        replace(CONFIG, qkv_bias=True, o_bias=True, rope_theta=1e6),
        replace(CONFIG, rope_interleaved=True, heads=2, hidden_normed=False),
    ]

    def test_rows_of_a_ragged_batch_equal_the_reference(self):
        rng = np.random.default_rng(1)
        for config in self.VARIANTS:
            with self.subTest(config=config), TemporaryDirectory() as folder:
                weights = random_weights(config)
                run = session(build_decode(config, weights), folder)
                lengths = [5, 11, 8]
                rows = [rng.standard_normal((n + 6, config.hidden)).astype(np.float32) for n in lengths]
                # Right-padded first prefill of all rows, with garbage in the padding, then six steps.
                padded = np.full((3, 11, config.hidden), 7.0, np.float32)
                for row, n, columns in zip(padded, lengths, rows):
                    row[:n] = columns[:n]
                feed = empty_cache(config, 3)
                feed |= {
                    "inputs_embeds": padded,
                    "lengths": np.array(lengths, np.int32) - 1,
                    "total": np.array(11, np.int32),
                }
                for step in range(7):
                    logits, hidden, *cache = run.run(None, feed)
                    for r in range(3):
                        residual, normed = reference(config, weights, rows[r][: lengths[r] + step])
                        expected = (normed if config.hidden_normed else residual)[-1]
                        np.testing.assert_allclose(hidden[r, 0], expected, atol=2e-4)
                        np.testing.assert_allclose(logits[r, 0], normed[-1] @ weights["head"].T, atol=2e-4)
                    if step == 6:
                        break
                    at = np.array(lengths) + step
                    feed = dict(zip(empty_cache(config, 0), cache))
                    feed["inputs_embeds"] = np.stack([columns[n] for columns, n in zip(rows, at)])[:, None]
                    feed |= {"lengths": at.astype(np.int32), "total": np.array(at.max() + 1, np.int32)}

    def test_a_cache_in_place_keeps_its_address_and_what_lies_behind_a_row(self):
        rng = np.random.default_rng(2)
        config = replace(CONFIG, qk_norm=True)
        with TemporaryDirectory() as folder:
            weights = random_weights(config)
            run = session(build_decode(config, weights), folder)
            columns = rng.standard_normal((9, config.hidden)).astype(np.float32)
            cache = {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in empty_cache(config, 1, 32, fill=3.0).items()}
            for start, end in ((0, 6), (6, 7), (7, 8), (8, 9)):
                binding = run.io_binding()
                binding.bind_cpu_input("inputs_embeds", columns[None, start:end])
                binding.bind_cpu_input("lengths", np.array([end - 1], np.int32))
                binding.bind_cpu_input("total", np.array(end, np.int32))
                for name, value in cache.items():
                    binding.bind_ortvalue_input(name, value)
                    binding.bind_ortvalue_output(name.replace("past", "present"), value)
                binding.bind_output("logits")
                binding.bind_output("hidden")
                run.run_with_iobinding(binding)
            hidden = next(v for v in binding.copy_outputs_to_cpu() if v.shape == (1, 1, config.hidden))
            np.testing.assert_allclose(hidden[0, 0], reference(config, weights, columns)[1][-1], atol=2e-4)
            self.assertTrue((cache["past.1.key"].numpy()[:, :, 9:] == 3.0).all())

    def test_fp16_changes_the_type_of_the_cache_only(self):
        with TemporaryDirectory() as folder:
            config = replace(CONFIG, qk_norm=True)
            weights = random_weights(config)
            run = session(build_decode(config, weights, "fp16"), folder)
            kinds = {port.name: port.type for port in (*run.get_inputs(), *run.get_outputs())}
            self.assertEqual({v for k, v in kinds.items() if "." in k}, {"tensor(float16)"})
            self.assertEqual(kinds["inputs_embeds"], "tensor(float)")
            columns = np.random.default_rng(3).standard_normal((1, 7, config.hidden)).astype(np.float32)
            feed = empty_cache(config, 1, kind=np.float16)
            feed |= {"inputs_embeds": columns, "lengths": np.array([6], np.int32), "total": np.array(7, np.int32)}
            hidden = run.run(["hidden"], feed)[0]
            np.testing.assert_allclose(hidden[0, 0], reference(config, weights, columns[0])[1][-1], atol=3e-2)


class Frame(unittest.TestCase):
    def setUp(self):
        self.config = FrameConfig(stack=CONFIG, hidden=24, codebooks=5, sounds=30)
        rng = np.random.default_rng(5)
        self.weights = random_weights(CONFIG)
        self.weights["project"] = rng.standard_normal((32, 24)).astype(np.float32)
        self.weights["project_bias"] = rng.standard_normal(32).astype(np.float32)
        for i in range(5):
            size = 31 if i == 0 else 30
            self.weights[f"inner.{i}"] = rng.standard_normal((size, 32)).astype(np.float32)
            self.weights[f"outer.{i}"] = rng.standard_normal((size, 24)).astype(np.float32)
            self.weights[f"heads.{i}"] = rng.standard_normal((30, 32)).astype(np.float32)
        self.hidden = rng.standard_normal((6, 24)).astype(np.float32)
        self.code = np.array([3, 30, 7, 0, 29, 3])
        self.uniform = rng.random((6, 4)).astype(np.float32)

    def expected(self, row, temperature, top_k, top_p):
        w = self.weights
        columns = [w["project"] @ self.hidden[row] + w["project_bias"], w["inner.0"][self.code[row]]]
        codes = []
        for i in range(1, 5):
            logits = w[f"heads.{i}"] @ reference(CONFIG, w, np.array(columns))[1][-1]
            if temperature <= 0:
                code = int(logits.argmax())
            else:
                logits = logits / temperature
                order = np.argsort(-logits)[: top_k or None]
                odds = np.exp(logits[order] - logits.max())
                before = np.cumsum(odds / odds.sum()) - odds / odds.sum()
                keep = order[(before < top_p) | (np.arange(len(order)) == 0)]
                odds = np.zeros(30)
                odds[keep] = np.exp(logits[keep] - logits.max())
                total = np.cumsum(odds)
                code = int(np.argmax(total > self.uniform[row, i - 1] * total[-1]))
            codes.append(code)
            if i < 4:
                columns.append(w[f"inner.{i}"][code])
        embeds = w["outer.0"][self.code[row]].copy()
        if self.code[row] < 30:
            embeds += sum(w[f"outer.{i}"][c] for i, c in enumerate(codes, 1))
        return codes, embeds

    def test_codes_are_drawn_as_the_layout_says(self):
        with TemporaryDirectory() as folder:
            run = session(build_frame(self.config, self.weights), folder)
            for temperature, top_k, top_p in (
                (0.0, 0, 1.0),
                (0.9, 50, 1.0),
                (0.9, 5, 1.0),
                (3.0, 0, 0.6),
                (2.0, 9, 0.5),
                (1.0, 0, 0.0),
            ):
                with self.subTest(temperature=temperature, top_k=top_k, top_p=top_p):
                    feed = {"hidden": self.hidden, "code": self.code, "uniform": self.uniform}
                    feed |= {
                        "temperature": np.array(temperature, np.float32),
                        "top_k": np.array(top_k, np.int64),
                        "top_p": np.array(top_p, np.float32),
                    }
                    codes, embeds = run.run(None, feed)
                    for row in range(6):
                        want, summed = self.expected(row, temperature, top_k, top_p)
                        self.assertEqual(codes[row].tolist(), want)
                        np.testing.assert_allclose(embeds[row], summed, atol=1e-4)

    def test_the_greatest_random_number_draws_a_code_that_may_be_drawn(self):
        with TemporaryDirectory() as folder:
            run = session(build_frame(self.config, self.weights), folder)
            self.uniform[:] = np.nextafter(np.float32(1), np.float32(0))
            feed = {"hidden": self.hidden, "code": self.code, "uniform": self.uniform}
            feed |= {
                "temperature": np.array(0.9, np.float32),
                "top_k": np.array(3, np.int64),
                "top_p": np.array(1, np.float32),
            }
            codes, _ = run.run(None, feed)
            feed["uniform"] = np.zeros_like(self.uniform)
            self.assertTrue(((codes >= 0) & (codes < 30)).all())


class Files(unittest.TestCase):
    def test_large_weights_lie_beside_the_graph(self):
        with TemporaryDirectory() as folder:
            table = np.random.default_rng(6).standard_normal((20000, 64)).astype(np.float32)
            run = session(build_embed(table), folder)
            self.assertTrue((Path(folder) / "graph.onnx_data").exists())
            self.assertLess((Path(folder) / "graph.onnx").stat().st_size, 10000)
            ids = np.array([[3], [19999]])
            np.testing.assert_array_equal(run.run(None, {"ids": ids})[0], table[ids])

    def test_shared_weights_are_stored_once(self):
        with TemporaryDirectory() as folder:
            weights = random_weights(CONFIG)
            build_decode(CONFIG, weights).save(Path(folder) / "once.onnx")
            for i in range(1, 2):
                weights |= {k.replace("layers.0", f"layers.{i}"): v for k, v in weights.items() if "layers.0" in k}
            build_decode(CONFIG, weights).save(Path(folder) / "shared.onnx")
            once, shared = ((Path(folder) / n).stat().st_size for n in ("once.onnx", "shared.onnx"))
            self.assertLess(shared, once * 0.75)

    def test_what_cannot_be_written_is_refused(self):
        with self.assertRaisesRegex(ExportError, "multiples of 16"):
            replace(CONFIG, head_size=24)
        with self.assertRaisesRegex(ExportError, "multiple of"):
            replace(CONFIG, kv_heads=3)
        with self.assertRaisesRegex(ExportError, "precision"):
            build_embed(np.zeros((2, 2)), "int3")
        with self.assertRaisesRegex(ExportError, "too large for fp16"), TemporaryDirectory() as folder:
            build_embed(np.full((2, 2), 1e6), "fp16").save(Path(folder) / "graph.onnx")


if __name__ == "__main__":
    unittest.main()
