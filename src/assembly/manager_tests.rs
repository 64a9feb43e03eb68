//! The manager with fake engines: which models "auto" selects and skips, and that nothing is loaded twice.

use super::*;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::vad::FakeVad;
use antiphon_engine_api::llm::Llm;
use antiphon_registry::ModelsConfig;
use antiphon_registry::Stage;
use std::sync::Mutex;

/// Has the engines whisper, piper and kokoro, which accept any file that does not begin with "broken", and records what
/// it created and measured. A file that begins with "waits" and a number is a voice whose first sound takes this number
/// of milliseconds; other voices take none.
#[derive(Clone, Default)]
struct Puppets {
    made: Arc<Mutex<Vec<String>>>,
    /// What the file of the voice made last holds.
    voice: Arc<Mutex<String>>,
    /// The first sounds that were measured, in milliseconds.
    measured: Arc<Mutex<Vec<u32>>>,
}

impl Puppets {
    fn note(&self, stage: &'static str, engine: &str, model: &str) -> Result<(), StageFailure> {
        self.made.lock().unwrap().push(engine.into());
        let text = std::fs::read_to_string(model).unwrap_or_default();
        assert!(!text.starts_with("panic"), "on purpose");
        if text.starts_with("broken") { Err(StageFailure::new(stage, engine, "it is broken")) } else { Ok(()) }
    }

    fn made(&self) -> Vec<String> {
        let mut made = std::mem::take(&mut *self.made.lock().unwrap());
        made.sort();
        made
    }
}

impl EngineFactory for Puppets {
    fn knows(&self, _: Stage, family: &str) -> bool {
        ["whisper", "piper", "kokoro"].contains(&family)
    }

    fn vad(&self, config: &Config) -> Result<Arc<dyn Vad>, StageFailure> {
        self.note("vad", &config.vad.engine, "")?;
        Ok(Arc::new(FakeVad))
    }

    fn turn(&self, _: &Config) -> Result<Arc<dyn TurnModel>, StageFailure> {
        Err(StageFailure::new("turn", "smart-turn", "there is none in this test"))
    }

    fn stt(&self, config: &Config) -> Result<Arc<dyn Stt>, StageFailure> {
        self.note("stt", &config.stt.engine, &config.stt.model)?;
        Ok(Arc::new(FakeStt::default()))
    }

    fn llm(&self, config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
        self.note("llm", &config.llm.engine, "")?;
        Ok(Arc::new(FakeLlm::default()))
    }

    fn tts(&self, config: &Config) -> Result<Arc<dyn Tts>, StageFailure> {
        self.note("tts", &config.tts.engine, &config.tts.model)?;
        *self.voice.lock().unwrap() = std::fs::read_to_string(&config.tts.model).unwrap_or_default();
        if config.tts.engine == "kokoro" && config.tts.voice != "slt" {
            return Err(StageFailure::new("tts", "kokoro", "there is no such voice"));
        }
        Ok(Arc::new(FakeTts::default()))
    }

    fn measure_tts(&self, _: &Arc<dyn Tts>) -> Option<Result<Trial, String>> {
        let text = self.voice.lock().unwrap().clone();
        if text == "fails" {
            return Some(Err("it has no voice".into()));
        }
        let wait_ms = text.strip_prefix("waits ").map_or(0, |ms| ms.parse().unwrap());
        self.measured.lock().unwrap().push(wait_ms);
        Some(Ok(Trial { wait_ms, both_ms: wait_ms, share: 0.1 }))
    }
}

/// A models' folder, with a registry of small models in addition to the built-in one.
struct Fixture {
    dir: tempfile::TempDir,
    config: Config,
    puppets: Puppets,
}

const OWN: &str = r#"
[[model]]
name = "NAME"
stage = "STAGE"
family = "FAMILY"
title = "T"
base = "http://h/"
licence = "MIT"
languages = [LANGUAGE]
rate_hz = 16000
auto = RANK
[[model.variant]]
precision = "fp32"
files = [{ role = "ROLE", path = "m.bin", about_mb = 1 }]
"#;

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let models = [
            ("ears", "stt", "whisper", "\"en\"", "10", "model"),
            ("big-ears", "stt", "whisper", "\"de\"", "20", "model"),
            ("voice", "tts", "piper", "", "10", "graph"),
            ("best-voice", "tts", "kokoro", "\"en\", \"de\"", "90", "graph"),
            ("fish-voice", "tts", "fish", "", "99", "graph"),
        ];
        let one = |(name, stage, family, language, rank, role): (&str, &str, &str, &str, &str, &str)| {
            let text = OWN.replace("NAME", name).replace("STAGE", stage).replace("FAMILY", family);
            text.replace("LANGUAGE", language).replace("RANK", rank).replace("ROLE", role)
        };
        let path = dir.path().join("own.toml");
        std::fs::write(&path, models.map(one).concat()).unwrap();
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let models = ModelsConfig { dir: text(dir.path()), registry: text(&path), ..ModelsConfig::default() };
        let config = Config { models, ..Config::default() };
        Self { dir, config, puppets: Puppets::default() }
    }

    fn put(&self, model: &str, text: &str) {
        let folder = self.dir.path().join(model);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("m.bin"), text).unwrap();
    }

    fn manager(&self) -> EngineManager {
        EngineManager::with(&self.config, Box::new(self.puppets.clone())).unwrap()
    }

    /// Checks the active engine and model of the stage.
    #[track_caller]
    fn serves(manager: &EngineManager, stage: &str, engine: &str, model: Option<&str>) {
        let served = manager.served().into_iter().find(|served| served.stage == stage).unwrap();
        assert_eq!((served.engine.as_str(), served.model.as_deref()), (engine, model), "{served:?}");
    }
}

#[test]
fn without_models_the_engines_that_need_none_serve() {
    let fixture = Fixture::new();
    let manager = fixture.manager();
    manager.load().unwrap();
    for (stage, engine) in [("vad", "earshot"), ("turn", "silence"), ("stt", "none"), ("tts", "flite")] {
        Fixture::serves(&manager, stage, engine, None);
    }
    assert_eq!(fixture.puppets.made(), ["assistant", "earshot", "flite", "none"]);
}

#[test]
fn auto_takes_the_best_that_is_here_and_a_later_pull_changes_that_stage_alone() {
    let fixture = Fixture::new();
    fixture.put("voice", "ok");
    // The highest rank, but this program has no such engine.
    fixture.put("fish-voice", "ok");
    let manager = fixture.manager();
    let before = manager.load().unwrap().engines;
    Fixture::serves(&manager, "tts", "piper", Some("voice:fp32"));
    fixture.puppets.made();
    fixture.put("best-voice", "ok");
    let after = manager.load().unwrap().engines;
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    assert_eq!(fixture.puppets.made(), ["kokoro"], "the other stages keep their engines");
    assert!(Arc::ptr_eq(&before.stt, &after.stt) && !Arc::ptr_eq(&before.tts, &after.tts));
    // The active model stays; the one that no session uses any more is unloaded.
    assert!(!manager.release("best-voice") && !manager.release("voice"));
    drop(before);
    assert!(manager.release("voice"));
}

#[test]
fn what_cannot_be_loaded_is_passed_over_and_told() {
    let fixture = Fixture::new();
    fixture.put("best-voice", "panic");
    fixture.put("voice", "broken");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "flite", None);
    let served = manager.served().into_iter().find(|served| served.stage == "tts").unwrap();
    let models: Vec<_> = served.passed_over.iter().map(|passed| passed.model.as_str()).collect();
    assert_eq!(models, ["best-voice:fp32", "voice:fp32"]);
    assert!(served.passed_over[0].why.contains("panicked") && served.passed_over[1].why.contains("it is broken"));
}

#[test]
fn what_is_damaged_is_told_and_not_passed_over_in_silence() {
    let mut fixture = Fixture::new();
    fixture.put("best-voice", "");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "flite", None);
    let passed = &manager.served().into_iter().find(|served| served.stage == "tts").unwrap().passed_over;
    assert_eq!((passed.len(), passed[0].model.as_str()), (1, "best-voice"));
    assert!(passed[0].why.contains("it is empty; pull the model again"), "{passed:?}");
    fixture.config.tts.engine = "kokoro".into();
    let said = fixture.manager().load().err().expect("refused").to_string();
    assert!(said.contains("it is empty; pull the model again"), "{said}");
}

#[test]
fn auto_takes_a_model_that_is_named_first() {
    let mut fixture = Fixture::new();
    fixture.put("best-voice", "ok");
    fixture.put("voice", "ok");
    fixture.config.tts.model = "voice".into();
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "piper", Some("voice:fp32"));
    let served = |manager: &EngineManager| manager.served().into_iter().find(|served| served.stage == "tts").unwrap();
    assert!(!served(&manager).auto, "it is not offered a better one");
    fixture.put("voice", "broken");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    for (model, expect) in
        [("fish-voice", "antiphon models pull fish-voice"), ("tts-1-hd", "in tts.engine"), ("a/path", "in tts.engine")]
    {
        fixture.config.tts.model = model.into();
        let said = fixture.manager().load().err().expect("refused").to_string();
        assert!(said.contains(expect), "{said}");
    }
}

#[test]
fn a_voice_that_the_best_engine_does_not_have_is_no_reason_to_pass_it_over() {
    let mut fixture = Fixture::new();
    fixture.put("best-voice", "ok");
    fixture.config.tts.voice = "rms".into();
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    // An explicitly configured engine implies the configured voice.
    fixture.config.tts.engine = "kokoro".into();
    let said = fixture.manager().load().err().expect("refused").to_string();
    assert!(said.contains("no such voice"), "{said}");
}

#[test]
fn what_replaces_another_has_room_where_the_shelf_is_full() {
    let mut fixture = Fixture::new();
    fixture.config.models.max_loaded = 1;
    fixture.put("voice", "ok");
    let manager = fixture.manager();
    let before = manager.load().unwrap();
    fixture.put("best-voice", "ok");
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    drop(before);
    fixture.put("ears", "ok");
    let full = manager.stt("ears").err().expect("it is no replacement").to_string();
    assert!(full.contains("raise models.max_loaded"), "{full}");
}

#[test]
fn auto_minds_the_language() {
    for (language, engine, model) in
        [("", "whisper", Some("big-ears:fp32")), ("en", "whisper", Some("ears:fp32")), ("fr", "none", None)]
    {
        let mut fixture = Fixture::new();
        fixture.config.stt.language = language.into();
        fixture.put("ears", "ok");
        fixture.put("big-ears", "ok");
        let manager = fixture.manager();
        manager.load().unwrap();
        Fixture::serves(&manager, "stt", engine, model);
    }
    let mut fixture = Fixture::new();
    fixture.config.stt.language = "pt".into();
    fixture.put("best-voice", "ok");
    fixture.put("voice", "ok");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "piper", Some("voice:fp32"));
    // No model supports the language: the best one is used.
    fixture.put("voice", "broken");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
}

#[test]
fn a_named_engine_or_model_is_taken_or_refused_never_replaced() {
    let refused = |engine: &str, model: &str, expect: &str| {
        let mut fixture = Fixture::new();
        fixture.config.tts.engine = engine.into();
        fixture.config.tts.model = model.into();
        fixture.put("ears", "ok");
        let said = fixture.manager().load().err().expect("refused").to_string();
        assert!(said.contains(expect), "{expect:?} is not in {said:?}");
    };
    refused("kokoro", "best-voice", "get it with `antiphon models pull best-voice`");
    refused("kokoro", "tts-1", "antiphon models pull best-voice");
    refused("kokoro", "ears", "the model ears is one of whisper (stt)");
    refused("piper", "piper-en_US-lesac-medium", "did you mean \"piper-en_US-lessac-medium\"?");
    let mut fixture = Fixture::new();
    fixture.config.tts.engine = "piper".into();
    fixture.config.tts.model = "voice:fp32".into();
    fixture.put("best-voice", "ok");
    fixture.put("voice", "ok");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "piper", Some("voice:fp32"));
}

#[test]
fn want_of_room_is_for_now_and_a_missing_model_is_not() {
    let mut fixture = Fixture::new();
    fixture.config.models.max_loaded = 1;
    fixture.put("best-voice", "ok");
    fixture.put("voice", "ok");
    let manager = fixture.manager();
    let held = manager.tts("best-voice").unwrap();
    assert!(manager.tts("voice").err().unwrap().is_busy());
    drop(held);
    manager.tts("voice").unwrap();
    assert!(!manager.stt("ears").err().unwrap().is_busy());
}

#[test]
fn models_are_preloaded_named_and_shared() {
    let mut fixture = Fixture::new();
    fixture.config.tts.engine = "flite".into();
    fixture.config.models.preload = vec!["best-voice".into()];
    let manager = fixture.manager();
    let missing = manager.load().err().expect("it is not here").to_string();
    assert!(missing.contains("antiphon models pull best-voice"), "{missing}");
    fixture.put("best-voice", "ok");
    fixture.puppets.made();
    manager.load().unwrap();
    assert!(fixture.puppets.made().contains(&"kokoro".to_owned()));
    let one = manager.tts("best-voice").unwrap();
    let two = manager.tts("best-voice:fp32").unwrap();
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(fixture.puppets.made(), [""; 0], "it was there");
    for (model, expect) in [("ears", "serves another stage"), ("voice", "models pull"), ("nobody", "there is no model")]
    {
        let said = manager.tts(model).err().unwrap().to_string();
        assert!(said.contains(expect), "{said}");
    }
}

/// The models that were passed over as too slow for this machine.
fn too_slow(manager: &EngineManager) -> Vec<String> {
    let voice = manager.served().into_iter().find(|served| served.stage == "tts").unwrap();
    voice.passed_over.into_iter().filter(|passed| passed.slow).map(|passed| passed.model).collect()
}

#[test]
fn auto_takes_the_best_voice_that_this_machine_runs_in_time() {
    let fixture = Fixture::new();
    fixture.put("best-voice", "waits 301");
    fixture.put("voice", "waits 300");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "piper", Some("voice:fp32"));
    assert_eq!(too_slow(&manager), ["best-voice:fp32"]);
    let served = manager.served().into_iter().find(|served| served.stage == "tts").unwrap();
    assert!(served.passed_over[0].why.contains("first sound after 301 ms"), "{served:?}");
    assert_eq!(served.measured.unwrap().wait_ms, 300);
    assert_eq!(*fixture.puppets.measured.lock().unwrap(), [301, 300]);
    // The slow one was loaded to be measured, and did not stay.
    assert!(manager.release("best-voice"));

    // The figures are kept beside the models, so that the next start measures nothing.
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "piper", Some("voice:fp32"));
    assert_eq!(fixture.puppets.measured.lock().unwrap().len(), 2);

    // A file that changed is another model.
    fixture.put("best-voice", "waits 20");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    assert_eq!(too_slow(&manager), [""; 0]);
    assert_eq!(
        *fixture.puppets.measured.lock().unwrap(),
        [301, 300, 20],
        "the best one is fast enough: no other is measured"
    );
}

#[test]
fn the_fastest_serves_where_none_is_in_time() {
    let fixture = Fixture::new();
    fixture.put("best-voice", "waits 900");
    fixture.put("voice", "waits 400");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "piper", Some("voice:fp32"));
    fixture.put("voice", "waits 1900");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    assert_eq!(too_slow(&manager), [""; 0], "it serves");
}

#[test]
fn a_model_that_cannot_be_measured_keeps_its_rank() {
    let fixture = Fixture::new();
    fixture.put("best-voice", "fails");
    fixture.put("voice", "waits 10");
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    let served = manager.served().into_iter().find(|served| served.stage == "tts").unwrap();
    assert_eq!(served.measured, None);
}

#[test]
fn what_the_configuration_names_is_not_measured_unless_asked() {
    let mut fixture = Fixture::new();
    fixture.put("best-voice", "waits 900");
    fixture.config.tts.engine = "kokoro".into();
    let manager = fixture.manager();
    manager.load().unwrap();
    Fixture::serves(&manager, "tts", "kokoro", Some("best-voice:fp32"));
    assert_eq!(*fixture.puppets.measured.lock().unwrap(), [0; 0]);
    assert_eq!(manager.measure("best-voice").unwrap().wait_ms, 900);
    let said = manager.measure("voice").unwrap_err().to_string();
    assert!(said.contains("antiphon models pull voice"), "{said}");
}
