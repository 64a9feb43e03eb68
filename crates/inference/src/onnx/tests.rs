//! The runtime with real models: loading, running, cancelling, and what is refused. `make onnxruntime` puts the library
//! where these find it; `tests/fixtures/onnx/tiny.py` writes the models.

use super::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

static COUNTER: Signature = Signature {
    family: "counter",
    inputs: &[Port::new("x", &[Kind::F32], 2), Port::new("steps", &[Kind::I64], 0)],
    outputs: &[Port::new("y", &[Kind::F32], 2), Port::new("n", &[Kind::I64], 0)],
};

static VOICE: Signature = Signature {
    family: "Piper voice",
    inputs: &[Port::new("input", &[Kind::I64], 2)],
    outputs: &[Port::new("output", &[Kind::F32], 4)],
};

/// Where `make onnxruntime` puts the library.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/onnxruntime");

/// Steps: enough that no run ends by itself.
const ENDLESS: i64 = i64::MAX;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx").join(name)
}

fn runtime() -> Runtime {
    Runtime::open(&OnnxConfig { runtime: INSTALLED.into(), ..OnnxConfig::default() })
        .expect("`make onnxruntime` was run")
}

fn counter() -> Model {
    runtime().load(&fixture("counter.onnx"), &ModelOptions::of(&COUNTER)).expect("loaded")
}

fn count(model: &Model, steps: i64, cancel: &CancellationToken) -> Result<i64, OnnxError> {
    let steps = [steps];
    let inputs = [("x", Tensor::f32([1, 1], &[1.0])), ("steps", Tensor::i64([], &steps))];
    Ok(model.run(&inputs, cancel)?.named("n")?.i64()?[0])
}

#[test]
fn a_model_runs_and_says_what_it_takes() {
    let model = counter();
    assert_eq!(model.provider(), Provider::Cpu);
    assert_eq!(model.inputs()[0].to_string(), "x: f32[?, ?]");
    assert_eq!(model.input("steps").map(|slot| slot.kind.clone()), Some(Kind::I64));
    let x = [1.0, -2.0, 0.5, 3.0, 0.0, 8.0];
    let inputs = [("steps", Tensor::i64([], &[7])), ("x", Tensor::f32([2, 3], &x))];
    let outputs = model.run(&inputs, &CancellationToken::new()).expect("it runs");
    let y = outputs.at(0).expect("an output");
    assert_eq!((y.name(), y.shape()), ("y", &[2, 3][..]));
    assert_eq!(y.f32().expect("real"), [2.0, -4.0, 1.0, 6.0, 0.0, 16.0]);
    assert_eq!(outputs.named("n").expect("an output").i64().expect("whole"), [7]);
    assert!(outputs.named("n").expect("an output").f32().is_err());
    assert!(outputs.at(2).is_err() && outputs.named("z").is_err());
}

#[test]
fn half_precision_is_given_and_taken_as_f32() {
    let model = runtime().load(&fixture("half.onnx"), &ModelOptions::default()).expect("loaded");
    assert_eq!(model.inputs()[0].kind, Kind::F16);
    let outputs = model.run(&[("x", Tensor::f32([3], &[0.5, -1.0, 1024.0]))], &CancellationToken::new());
    assert_eq!(outputs.expect("it runs").into_f32().expect("real"), [1.0, -2.0, 2048.0]);
}

#[test]
fn cancelling_from_another_thread_ends_a_run_and_the_model_lives() {
    let model = Arc::new(counter());
    let cancel = CancellationToken::new();
    let run = std::thread::spawn({
        let model = model.clone();
        let cancel = cancel.child_token();
        move || count(&model, ENDLESS, &cancel)
    });
    cancel.cancel();
    assert!(matches!(run.join().expect("no panic"), Err(OnnxError::Cancelled)));
    assert!(matches!(count(&model, 1, &cancel), Err(OnnxError::Cancelled)));
    assert_eq!(count(&model, 3, &CancellationToken::new()).expect("it runs again"), 3);
}

#[test]
fn a_run_under_way_is_ended_too() {
    let model = Arc::new(counter());
    let cancel = CancellationToken::new();
    let run = std::thread::spawn({
        let model = model.clone();
        let cancel = cancel.clone();
        move || count(&model, ENDLESS, &cancel)
    });
    // The first run holds the model: once a second caller finds it taken, it is under way.
    while model.is_free() {
        std::thread::yield_now();
    }
    cancel.cancel();
    assert!(matches!(run.join().expect("no panic"), Err(OnnxError::Cancelled)));
}

#[test]
fn wrong_inputs_are_errors_and_the_model_lives() {
    let model = counter();
    let run = |inputs: &[(&str, Tensor<'_>)]| model.run(inputs, &CancellationToken::new()).expect_err("refused");
    let refused = |inputs: &[(&str, Tensor<'_>)]| {
        let error = run(inputs);
        assert!(matches!(error, OnnxError::Inputs { .. }), "{error:?}");
        error.to_string()
    };
    let steps = || ("steps", Tensor::i64([], &[1]));
    let short = refused(&[("x", Tensor::f32([2, 3], &[1.0])), steps()]);
    assert!(short.ends_with("x: a tensor of shape [2, 3] needs 6 numbers, not 1"), "{short}");
    assert!(refused(&[("x", Tensor::i64([1, 1], &[1])), steps()]).contains("expected"), "of another type");
    assert!(matches!(run(&[steps()]), OnnxError::Run { .. }), "the runtime finds it missing in the midst of a run");
    refused(&[("x", Tensor::f32([1, 1], &[1.0])), steps(), ("z", Tensor::f32([1], &[1.0]))]);
    assert_eq!(count(&model, 2, &CancellationToken::new()).expect("it runs"), 2);
}

#[test]
fn a_model_of_another_family_is_named() {
    let error = runtime().load(&fixture("counter.onnx"), &ModelOptions::of(&VOICE)).expect_err("refused");
    let text = error.to_string();
    let expect = "is no Piper voice: it takes x: f32[?, ?], steps: i64[], and no input: i64[?, ?]";
    assert!(text.ends_with(expect), "{text}");
}

#[test]
fn what_is_no_model_is_refused_in_plain_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(fixture("counter.onnx")).expect("the fixture");
    for (name, bytes) in [
        ("empty.onnx", &[][..]),
        ("text.onnx", b"<html>404 Not Found</html>"),
        ("half.onnx", &whole[..whole.len() / 2]),
        ("nearly.onnx", &whole[..whole.len() - 1]),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        let error = runtime().load(&path, &ModelOptions::of(&COUNTER)).expect_err(name);
        assert!(matches!(error, OnnxError::Corrupt { .. }), "{name}: {error}");
    }
    let missing = runtime().load(&folder.path().join("none.onnx"), &ModelOptions::default()).expect_err("missing");
    assert!(matches!(missing, OnnxError::Unreadable { .. }), "{missing}");
    let folder = runtime().load(folder.path(), &ModelOptions::default()).expect_err("a folder");
    assert!(matches!(folder, OnnxError::Unreadable { .. } | OnnxError::Corrupt { .. }), "{folder}");
}

#[test]
fn a_process_holds_one_library() {
    runtime();
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("libonnxruntime.so");
    std::fs::write(&other, "").expect("written");
    let config = OnnxConfig { runtime: other.display().to_string(), ..OnnxConfig::default() };
    assert!(matches!(Runtime::open(&config), Err(OnnxError::OtherLibrary { .. })));
    runtime();
}

/// The library of `make onnxruntime` has no CUDA.
#[test]
fn a_required_provider_that_does_not_serve_is_a_refusal() {
    let cuda = OnnxConfig { provider: "cuda".into(), runtime: INSTALLED.into(), ..OnnxConfig::default() };
    let path = fixture("counter.onnx");
    let model = Runtime::open(&cuda).expect("open").load(&path, &ModelOptions::default()).expect("on the processor");
    assert_eq!(model.provider(), Provider::Cpu);
    let required = Runtime::open(&OnnxConfig { require: true, ..cuda }).expect("open");
    let error = required.load(&path, &ModelOptions::default()).expect_err("refused").to_string();
    assert!(error.contains("cuda does not serve") && error.contains("make onnxruntime-gpu"), "{error}");
    let small = ModelOptions { on_cpu: true, ..ModelOptions::default() };
    assert!(required.load(&path, &small).is_ok(), "small models stay on the processor by intent");
}
