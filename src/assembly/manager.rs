//! The active engines, their models, and their replacement.
//!
//! `cli` creates an [`EngineManager`] at startup and passes it to `server`, which calls [`EngineManager::load`] again
//! after a pull: running sessions keep their engines, new sessions use the new ones. Models that "auto" had to skip are
//! reported in the log and in [`EngineInUse`]. Before the engines are loaded, models that "auto" may select are measured, each once for
//! this machine. Loading blocks.

use super::choose::{
    Choice, Choices, NO_TURN_MODEL, PassedOver, choices, expected, is_named, kind_of, name_of, objective_ms, settings,
    slowness, with,
};
use super::factory::whisper_uses_gpu;
use super::fallback::Fallbacks;
use super::membership::{CLUSTER, Membership};
use super::model_cache::{CachedValue, Limits, ModelCache, ModelCacheError};
use super::trial::{Trial, Trials};
use super::{AUTO, BuiltIn, EngineFactory, EnginesError, StageFailure};
use crate::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::llm::Llm;
use antiphon_engine_api::stt::{Stt, SttError};
use antiphon_engine_api::tts::Tts;
use antiphon_engine_api::turn::TurnModel;
use antiphon_engine_api::vad::Vad;
use antiphon_engines::llm::LlmConfig;
use antiphon_engines::stt::none;
use antiphon_engines::table::EngineKind;
use antiphon_registry::{Catalog, Entry, LocatedModel, RegistryError, Stage, locate};
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

/// The engine and model of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineInUse {
    /// The stage's name in the configuration.
    pub stage: &'static str,
    /// The engine's name; "cluster" where workers serve the stage.
    pub engine: String,
    /// The registry model it runs, with its precision, such as `kokoro:fp16`.
    pub model: Option<String>,
    /// Whether it was selected automatically as the best one available.
    pub auto: bool,
    /// How fast its model is on this machine, if that was measured.
    pub measured: Option<Trial>,
    /// Better models on disk that cannot be loaded, or are too slow for this machine.
    pub passed_over: Vec<PassedOver>,
}

impl EngineInUse {
    fn by_workers(stage: &'static str) -> Self {
        Self { stage, engine: CLUSTER.into(), model: None, auto: false, measured: None, passed_over: Vec::new() }
    }

    /// Whether it runs the registry model `name`, in any precision.
    pub fn runs(&self, name: &str) -> bool {
        self.model.as_deref().is_some_and(|model| without_precision(model) == name)
    }
}

/// A model's name without its precision.
pub fn without_precision(model: &str) -> &str {
    model.split(':').next().unwrap_or(model)
}

/// The engines of all stages at one moment.
#[derive(Clone)]
pub struct ActiveEngines {
    /// The engines.
    pub engines: Engines,
    /// Their names and models.
    pub served: Vec<EngineInUse>,
}

/// Loads, shares and replaces engines. Methods that load block, for seconds if models are large.
pub struct EngineManager {
    config: Config,
    catalog: Catalog,
    factory: Box<dyn EngineFactory>,
    cache: ModelCache<CachedEngine>,
    trials: Trials,
    membership: OnceLock<Membership>,
    fallbacks: Fallbacks,
    /// The language model that the operator connected while the hub runs; `None`: the configured one. Written while
    /// `active` is locked.
    connected: Mutex<Option<LlmConfig>>,
    /// The hub's own engines, and those of the cluster where it has none. Locked while engines are loaded, so that loads are
    /// sequential.
    active: Mutex<Option<ActiveEngines>>,
}

/// A cached engine.
#[derive(Clone)]
pub(super) enum CachedEngine {
    Vad(Arc<dyn Vad>),
    Turn(Arc<dyn TurnModel>),
    Stt(Arc<dyn Stt>),
    Tts(Arc<dyn Tts>),
}

impl CachedValue for CachedEngine {
    fn is_in_use(&self) -> bool {
        let copies = match self {
            Self::Vad(engine) => Arc::strong_count(engine),
            Self::Turn(engine) => Arc::strong_count(engine),
            Self::Stt(engine) => Arc::strong_count(engine),
            Self::Tts(engine) => Arc::strong_count(engine),
        };
        copies > 1
    }
}

/// The differences between the stages that run models.
pub(super) trait ModelStage: Send + Sync {
    const STAGE: Stage;
    fn make(factory: &dyn EngineFactory, config: &Config) -> Result<Arc<Self>, StageFailure>;
    /// `None` where the stage's models are not measured.
    fn measure(factory: &dyn EngineFactory, engine: &Arc<Self>) -> Option<Result<Trial, String>>;
    fn into_cached(engine: Arc<Self>) -> CachedEngine;
    fn from_cached(loaded: CachedEngine) -> Option<Arc<Self>>;
}

macro_rules! model_stage {
    ($port:ident, $stage:ident, $make:ident, $measure:expr) => {
        impl ModelStage for dyn $port {
            const STAGE: Stage = Stage::$stage;
            fn make(factory: &dyn EngineFactory, config: &Config) -> Result<Arc<Self>, StageFailure> {
                factory.$make(config)
            }
            fn measure(factory: &dyn EngineFactory, engine: &Arc<Self>) -> Option<Result<Trial, String>> {
                let measure: fn(&dyn EngineFactory, &Arc<Self>) -> Option<Result<Trial, String>> = $measure;
                measure(factory, engine)
            }
            fn into_cached(engine: Arc<Self>) -> CachedEngine {
                CachedEngine::$stage(engine)
            }
            fn from_cached(loaded: CachedEngine) -> Option<Arc<Self>> {
                if let CachedEngine::$stage(engine) = loaded { Some(engine) } else { None }
            }
        }
    };
}

model_stage!(Vad, Vad, vad, |_, _| None);
model_stage!(TurnModel, Turn, turn, |_, _| None);
model_stage!(Stt, Stt, stt, |factory, engine| factory.measure_stt(engine));
model_stage!(Tts, Tts, tts, |factory, engine| factory.measure_tts(engine));

impl EngineManager {
    /// Loads the model registry but no engine. Blocks for small files.
    pub fn new(config: &Config) -> Result<Self, StageFailure> {
        Self::with(config, Box::new(BuiltIn))
    }

    /// Like [`EngineManager::new`], with engines created by `factory`.
    pub fn with(config: &Config, factory: Box<dyn EngineFactory>) -> Result<Self, StageFailure> {
        let catalog = Catalog::load(&config.models).map_err(|error| StageFailure::new("models", "registry", error))?;
        let budget = config.models.memory_budget_mb;
        let limits = Limits {
            max_loaded: config.models.max_loaded,
            max_bytes: (budget > 0).then_some(budget.saturating_mul(1 << 20)),
        };
        let cache = ModelCache::new(limits);
        let active = Mutex::new(None);
        Ok(Self {
            config: config.clone(),
            catalog,
            factory,
            cache,
            trials: Trials::default(),
            membership: OnceLock::new(),
            fallbacks: Fallbacks::default(),
            connected: Mutex::default(),
            active,
        })
    }

    /// Leaves the membership's stages to workers, from the next [`EngineManager::load`] on. Only the first call counts.
    pub fn join(&self, membership: Membership) -> &Membership {
        self.membership.get_or_init(|| membership)
    }

    /// The membership in a cluster, if there is one.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.get()
    }

    /// Starts the engine of each stage, STT and TTS concurrently; the first call also loads the models of
    /// `models.preload`. Blocks until all are loaded. A stage whose choice has not changed keeps its engine. On an
    /// error, the previous engines stay active.
    pub fn load(&self) -> Result<ActiveEngines, EnginesError> {
        let mut place = self.active.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = place.clone();
        // One after the other, and while nothing is loaded: two cores measure one engine at a time.
        let serving = |stage| {
            let served = before.as_ref()?.served.iter().find(|served| served.stage == stage)?;
            served.model.as_deref()
        };
        self.measure_new::<dyn Stt>(serving("stt"));
        self.measure_new::<dyn Tts>(serving("tts"));
        let old = before.as_ref().map(|before| &before.engines);
        let old_served = before.as_ref().map(|b| &b.served);
        // Creating a remote engine may need the runtime's reactor, which threads do not inherit.
        let runtime = tokio::runtime::Handle::try_current().ok();
        let (stt, tts, llm, vad, turn, speaker) = thread::scope(|scope| {
            let enter = || runtime.as_ref().map(|runtime| runtime.enter());
            let stt = scope.spawn(move || {
                let _context = enter();
                if let Some(membership) = self.workers_alone(Stage::Stt) {
                    return Ok((membership.stt(None), EngineInUse::by_workers("stt")));
                }
                let before = active_stage(old_served, "stt", old.map(|old| &old.stt));
                let (engine, served) = self.stage::<dyn Stt>(before)?;
                let is_kept = before.is_some_and(|(_, kept)| Arc::ptr_eq(kept, &engine));
                Ok((if is_kept { engine } else { self.stt_with_fallback(engine)? }, served))
            });
            let tts = scope.spawn(move || {
                let _context = enter();
                if let Some(membership) = self.workers_alone(Stage::Tts) {
                    return Ok((membership.tts(None), EngineInUse::by_workers("tts")));
                }
                let before = active_stage(old_served, "tts", old.map(|old| &old.tts));
                let (engine, served) = self.stage::<dyn Tts>(before)?;
                let is_kept = before.is_some_and(|(_, kept)| Arc::ptr_eq(kept, &engine));
                Ok((if is_kept { engine } else { self.tts_with_fallback(engine)? }, served))
            });
            let llm = match old {
                Some(old) => Ok(old.llm.clone()),
                None => self.made_llm(&self.config).and_then(|engine| self.llm_with_fallback(engine)),
            };
            let vad = self.stage::<dyn Vad>(active_stage(old_served, "vad", old.map(|old| &old.vad)));
            let turn = match self.workers_alone(Stage::Turn) {
                Some(membership) => Ok((Some(membership.turn(None)), EngineInUse::by_workers("turn"))),
                None => self.tried(active_stage(old_served, "turn", old.and_then(|old| old.turn.as_ref()))),
            };
            let speaker = match old {
                Some(old) => Ok(old.speaker.clone()),
                None => self.factory.speaker(&self.config),
            };
            (joined("stt", stt), joined("tts", tts), llm, vad, turn, speaker)
        });
        let active = match (vad, turn, speaker, stt, llm, tts) {
            (Ok((vad, heard)), Ok((turn, taken)), Ok(speaker), Ok((stt, written)), Ok(llm), Ok((tts, spoken))) => {
                ActiveEngines {
                    engines: Engines { vad, turn, speaker, stt, llm, tts },
                    served: vec![heard, written, spoken, taken],
                }
            }
            (vad, turn, speaker, stt, llm, tts) => {
                let failures = [vad.err(), turn.err(), speaker.err(), stt.err(), llm.err(), tts.err()];
                return Err(EnginesError(failures.into_iter().flatten().collect()));
            }
        };
        if before.is_none() {
            self.preload()?;
        }
        *place = Some(active.clone());
        Ok(self.before_own(active))
    }

    /// Lets the language model of `llm` serve from now on, in the place of the configured one; `None`: the configured one again. It
    /// does not outlast the process. Blocks while engines are being loaded, and while a recognizer that expects the words of the
    /// language model is made again; connects to nothing.
    ///
    /// # Errors
    /// The engine cannot be made, or no engine has been loaded; the one before stays.
    pub fn connect_llm(&self, llm: Option<LlmConfig>) -> Result<ActiveEngines, StageFailure> {
        let mut place = self.active.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(mut active) = place.clone() else {
            return Err(StageFailure::new("llm", "", "the engines have not been loaded"));
        };
        let config = Config { llm: llm.clone().unwrap_or_else(|| self.config.llm.clone()), ..self.config.clone() };
        active.engines.llm = self.made_llm(&config).and_then(|engine| self.llm_with_fallback(engine))?;
        *self.connected.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = llm;
        *place = Some(active.clone());
        Ok(self.before_own(active))
    }

    /// The settings of the language model that serves, and whether it was connected while the hub runs.
    pub fn active_llm(&self) -> (LlmConfig, bool) {
        let connected = self.connected.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let is_connected = connected.is_some();
        (connected.unwrap_or_else(|| self.config.llm.clone()), is_connected)
    }

    /// The membership, if workers serve the stage and the hub loads no engine for it.
    fn workers_alone(&self, stage: Stage) -> Option<&Membership> {
        self.membership().filter(|membership| membership.serves(stage) && !membership.falls_back())
    }

    /// Puts the workers before the engines of the hub that stand in for them.
    fn before_own(&self, mut active: ActiveEngines) -> ActiveEngines {
        let Some(membership) = self.membership().filter(|membership| membership.falls_back()) else { return active };
        let engines = &mut active.engines;
        if membership.serves(Stage::Stt) {
            engines.stt = membership.stt(Some(engines.stt.clone()));
        }
        if membership.serves(Stage::Tts) {
            engines.tts = membership.tts(Some(engines.tts.clone()));
        }
        if membership.serves(Stage::Turn) {
            engines.turn = Some(membership.turn(engines.turn.take()));
        }
        for served in &mut active.served {
            if [Stage::Stt, Stage::Tts, Stage::Turn]
                .into_iter()
                .any(|stage| membership.serves(stage) && name_of(stage) == served.stage)
            {
                *served = EngineInUse {
                    passed_over: std::mem::take(&mut served.passed_over),
                    ..EngineInUse::by_workers(served.stage)
                };
            }
        }
        active
    }

    /// Whether workers serve the stage, and whether the hub's own engine stands in for them.
    pub fn on_workers(&self, stage: Stage) -> Option<bool> {
        self.membership().filter(|membership| membership.serves(stage)).map(Membership::falls_back)
    }

    /// The TTS engine of a registry model, such as `kokoro:fp16`: the cached one, or a new one. Blocks while it loads.
    pub fn tts(&self, model: &str) -> Result<Arc<dyn Tts>, StageFailure> {
        self.named::<dyn Tts>(model)
    }

    /// The STT engine of a registry model, like [`EngineManager::tts`].
    pub fn stt(&self, model: &str) -> Result<Arc<dyn Stt>, StageFailure> {
        self.named::<dyn Stt>(model)
    }

    /// The engine of stage `S` alone, for commands that need no other.
    pub(super) fn only<S: ModelStage + ?Sized>(&self) -> Result<Arc<S>, StageFailure> {
        self.stage::<S>(None).map(|(engine, _)| engine)
    }

    /// The engine of stage `S` alone, with its name and model; `None`: turn detection uses no model.
    pub(super) fn chosen<S: ModelStage + ?Sized>(&self) -> Result<(Option<Arc<S>>, EngineInUse), StageFailure> {
        self.tried::<S>(None)
    }

    /// The turn model alone, if there is one, for commands that need no other stage.
    pub(super) fn turn_model(&self) -> Result<Option<Arc<dyn TurnModel>>, StageFailure> {
        self.tried::<dyn TurnModel>(None).map(|(model, _)| model)
    }

    /// The active engines and models; empty before [`EngineManager::load`]. Blocks while engines are being loaded.
    pub fn served(&self) -> Vec<EngineInUse> {
        let active = self.active.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        active.as_ref().map(|active| active.served.clone()).unwrap_or_default()
    }

    /// All models of the registry.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The configuration it was created with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether this program includes the engine for the family.
    pub fn knows(&self, stage: Stage, family: &str) -> bool {
        self.factory.knows(stage, family)
    }

    /// The missing runtime dependency of a model, with instructions; `None` if nothing is missing.
    pub fn lacks(&self, entry: &Entry) -> Option<&'static str> {
        self.factory.lacks(&self.config, entry.stage, &entry.family)
    }

    /// Whether [`EngineManager::load`] selects the model once it is the best one on disk.
    pub fn takes_the_best(&self, entry: &Entry) -> bool {
        super::choose::takes_the_best(&self.config, entry)
    }

    /// The models to begin with: see [`recommended`](super::recommended).
    pub fn recommended(&self) -> Vec<&Entry> {
        super::recommended(&self.config, &self.catalog, self.factory.as_ref())
    }

    /// Whether the model supports the language set in `stt.language`.
    pub fn speaks(&self, entry: &Entry) -> bool {
        super::choose::speaks(&self.config, entry)
    }

    /// Unloads the model in all precisions; `false` if it is active or in use.
    pub fn release(&self, model: &str) -> bool {
        let serves = self.served().iter().any(|served| served.runs(model));
        !serves
            && self
                .cache
                .names()
                .iter()
                .filter(|name| without_precision(name) == model)
                .all(|name| self.cache.forget(name))
    }

    pub(super) fn fallbacks(&self) -> &Fallbacks {
        &self.fallbacks
    }

    /// The language model of `config`.
    pub(super) fn made_llm(&self, config: &Config) -> Result<Arc<dyn Llm>, StageFailure> {
        logged("llm", &config.llm.engine, || self.factory.llm(config))
    }

    /// The engine of a stage as `config` has it, in the place of the configuration of this manager.
    pub(super) fn stage_of<S: ModelStage + ?Sized>(&self, config: &Config) -> Result<Arc<S>, StageFailure> {
        let (engine, _) = self.tried_of::<S>(config, None)?;
        Ok(engine.expect("only turn-taking does without an engine"))
    }

    /// Loads the stage's first choice that can be loaded.
    fn stage<S: ModelStage + ?Sized>(
        &self,
        before: Option<(&EngineInUse, &Arc<S>)>,
    ) -> Result<(Arc<S>, EngineInUse), StageFailure> {
        let (engine, served) = self.tried(before)?;
        Ok((engine.expect("only turn-taking does without an engine"), served))
    }

    /// Like `stage`; `None` if the choice is to use no engine.
    fn tried<S: ModelStage + ?Sized>(
        &self,
        before: Option<(&EngineInUse, &Arc<S>)>,
    ) -> Result<(Option<Arc<S>>, EngineInUse), StageFailure> {
        let (llm, _) = self.active_llm();
        self.tried_of(&Config { llm, ..self.config.clone() }, before)
    }

    fn tried_of<S: ModelStage + ?Sized>(
        &self,
        config: &Config,
        before: Option<(&EngineInUse, &Arc<S>)>,
    ) -> Result<(Option<Arc<S>>, EngineInUse), StageFailure> {
        let stage = name_of(S::STAGE);
        let auto = settings(config, S::STAGE).0 == AUTO;
        let Choices { best_first, mut passed_over } = self.choices::<S>(config)?;
        for PassedOver { model, why, slow } in &passed_over {
            if *slow {
                tracing::info!(stage, model, why, "this model is too slow for this machine and is skipped");
            } else {
                tracing::warn!(stage, model, why, "this model is damaged and is skipped");
            }
        }
        let replaced = before.and_then(|(served, _)| served.model.as_deref());
        for (at, choice) in best_first.iter().enumerate() {
            let engine = choice.engine.clone();
            let model = choice.model_name();
            let is_best = auto && !is_named(config, S::STAGE);
            let measured = choice.model.as_ref().and_then(|model| self.trials.of(&self.config, S::STAGE, model));
            let served = |passed_over| EngineInUse { stage, engine, model, auto: is_best, measured, passed_over };
            if choice.engine == NO_TURN_MODEL {
                return Ok((None, served(passed_over)));
            }
            if let Some((old, kept)) = before
                && (&old.engine, &old.model) == (&choice.engine, &choice.model_name())
            {
                return Ok((Some(kept.clone()), served(passed_over)));
            }
            if choice.engine == none::NAME && auto {
                tracing::warn!(stage, "{}", SttError::NoRecognizer);
            }
            match self.made::<S>(config, choice, replaced, auto) {
                Ok(engine) => return Ok((Some(engine), served(passed_over))),
                Err(failure) if auto && at + 1 < best_first.len() => {
                    let model = choice.model_name().unwrap_or_default();
                    tracing::warn!(stage, model, %failure, "this model cannot be loaded; the next best one is used");
                    // The log has the causes; clients get one sentence.
                    passed_over.push(PassedOver { model, why: failure.cause.to_string(), slow: false });
                }
                Err(failure) => return Err(failure),
            }
        }
        unreachable!("there is always a choice, and the last one returns")
    }

    fn choices<S: ModelStage + ?Sized>(&self, config: &Config) -> Result<Choices, StageFailure> {
        choices(config, &self.catalog, self.factory.as_ref(), &self.trials, S::STAGE)
    }

    /// Measures the models among which "auto" selects and that were not measured on this machine, best first, until one keeps the
    /// objective. Blocks while they load and work. A model that fails here is reported when it is selected. `replaced`: the model
    /// that serves the stage now.
    fn measure_new<S: ModelStage + ?Sized>(&self, replaced: Option<&str>) {
        let is_auto = settings(&self.config, S::STAGE).0 == AUTO && !is_named(&self.config, S::STAGE);
        if !is_auto || self.workers_alone(S::STAGE).is_some() {
            return;
        }
        let Ok(choices) = self.choices::<S>(&self.config) else { return };
        for choice in &choices.best_first {
            let Some(model) = &choice.model else { return };
            let known = self.trials.of(&self.config, S::STAGE, model);
            let Some(trial) = known.or_else(|| self.measured::<S>(choice, model, replaced)) else { continue };
            if trial.verdict(S::STAGE, objective_ms(&self.config)).is_ok() {
                return;
            }
        }
    }

    /// Measures a model, keeps the figure, and unloads the model if it was loaded for this alone and is too slow. `None`: it cannot
    /// be loaded, fails, or is of a stage that is not measured.
    fn measured<S: ModelStage + ?Sized>(
        &self,
        choice: &Choice,
        model: &LocatedModel,
        replaced: Option<&str>,
    ) -> Option<Trial> {
        let stage = name_of(S::STAGE);
        let name = choice.model_name()?;
        let engine = self.made::<S>(&self.config, choice, replaced, true).ok()?;
        match S::measure(self.factory.as_ref(), &engine)? {
            Ok(trial) => {
                self.trials.keep(&self.config, S::STAGE, model, trial);
                tracing::info!(
                    stage,
                    model = name,
                    wait_ms = trial.wait_ms,
                    "measured, with two conversations at once"
                );
                if trial.verdict(S::STAGE, objective_ms(&self.config)).is_err() {
                    drop(engine);
                    self.cache.forget(&name);
                }
                Some(trial)
            }
            Err(why) => {
                tracing::warn!(stage, model = name, why, "this model cannot be measured");
                None
            }
        }
    }

    /// Measures a model of the registry again and keeps the figure, whatever is set. Blocks while it loads and works.
    ///
    /// # Errors
    /// It is not on disk, cannot be loaded, fails, or is of a stage that is not measured.
    pub fn measure(&self, model: &str) -> Result<Trial, StageFailure> {
        let failed = |error: RegistryError| StageFailure::new("models", model, error);
        let wanted = self.catalog.find(model).map_err(failed)?;
        let stage = wanted.entry.stage;
        let located = locate(&self.config.models, wanted).map_err(failed)?;
        let choice = Choice { engine: wanted.entry.family.clone(), model: Some(located.clone()) };
        let measured = match stage {
            Stage::Stt => <dyn Stt>::measure(self.factory.as_ref(), &self.made(&self.config, &choice, None, true)?),
            Stage::Tts => <dyn Tts>::measure(self.factory.as_ref(), &self.made(&self.config, &choice, None, true)?),
            Stage::Vad | Stage::Turn => None,
        };
        let trial = measured.unwrap_or_else(|| Err("models of this stage are not measured".into()));
        let trial = trial.map_err(|why| StageFailure::new(name_of(stage), model, why))?;
        self.trials.keep(&self.config, stage, &located, trial);
        Ok(trial)
    }

    /// How fast the model on disk is on this machine, if that was measured.
    pub fn trial(&self, stage: Stage, model: &LocatedModel) -> Option<Trial> {
        self.trials.of(&self.config, stage, model)
    }

    /// Whether a model that is not on disk is expected to keep the objective on this machine: by the registry's figure, and by the
    /// one of the model that serves the stage, if it was measured.
    pub fn is_fast_enough(&self, entry: &Entry, served: &EngineInUse) -> bool {
        let is_on_gpu = match entry.stage {
            Stage::Stt => whisper_uses_gpu(&self.config),
            _ => self.config.onnx.provider != "cpu",
        };
        let n_cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let serving = self.catalog.entries().iter().find(|entry| served.runs(&entry.name));
        let found = serving.zip(served.measured).and_then(|(entry, trial)| slowness(entry, n_cores, trial));
        let expected = expected(entry, n_cores, found.unwrap_or(1.0));
        expected.is_some_and(|trial| is_on_gpu || trial.verdict(entry.stage, objective_ms(&self.config)).is_ok())
    }

    /// The engine of a choice, from the cache if it runs a registry model. `any_voice`: the engine was not selected for
    /// the configured voice, so an engine without that voice uses its first one.
    fn made<S: ModelStage + ?Sized>(
        &self,
        config: &Config,
        choice: &Choice,
        in_place_of: Option<&str>,
        any_voice: bool,
    ) -> Result<Arc<S>, StageFailure> {
        let stage = name_of(S::STAGE);
        let made = |config: &Config| {
            logged(stage, &choice.engine, || {
                // An invalid model may make a library panic, which is handled like any other failure.
                let made = catch_unwind(AssertUnwindSafe(|| S::make(self.factory.as_ref(), config)));
                made.unwrap_or_else(|_| Err(StageFailure::new(stage, &choice.engine, PANICKED)))
            })
        };
        let make = || {
            let mut config = with(config, S::STAGE, choice);
            let failure = match made(&config) {
                Err(failure) if any_voice && S::STAGE == Stage::Tts && config.tts.chosen_voice().is_some() => failure,
                made => return made,
            };
            config.tts.voice = Config::default().tts.voice;
            let engine = made(&config)?;
            tracing::warn!(%failure, "the configured voice is not available; the engine uses its first voice");
            Ok(engine)
        };
        let (Some(name), Some(model)) = (choice.model_name(), &choice.model) else { return make() };
        // Each replica of a voice has the model for itself, Whisper's share one on each device.
        let n_devices = config.onnx.devices().len();
        let has_slots = kind_of(S::STAGE, &choice.engine).is_some_and(EngineKind::has_slots);
        let copies = match S::STAGE {
            Stage::Stt => config.stt.n_copies(),
            Stage::Tts if has_slots => config.tts.n_instances(n_devices),
            Stage::Tts => config.tts.pool_size(n_devices),
            Stage::Vad | Stage::Turn => 1,
        };
        let taken = self.cache.take(&name, copies as u64 * model.bytes, in_place_of, || make().map(S::into_cached));
        match taken {
            Ok(loaded) => S::from_cached(loaded).ok_or_else(|| StageFailure::new(stage, &choice.engine, OTHER_STAGE)),
            Err(ModelCacheError::Load(failure)) => Err(failure),
            Err(full @ ModelCacheError::Full { .. }) => {
                Err(StageFailure::new(stage, &choice.engine, full.to_string()).for_now())
            }
        }
    }

    fn named<S: ModelStage + ?Sized>(&self, model: &str) -> Result<Arc<S>, StageFailure> {
        let stage = name_of(S::STAGE);
        let failed = |error: RegistryError| StageFailure::new(stage, model, error);
        let wanted = self.catalog.find(model).map_err(failed)?;
        if wanted.entry.stage != S::STAGE {
            return Err(StageFailure::new(stage, model, OTHER_STAGE));
        }
        let located = locate(&self.config.models, wanted).map_err(failed)?;
        self.made::<S>(&self.config, &Choice { engine: wanted.entry.family.clone(), model: Some(located) }, None, true)
    }

    fn preload(&self) -> Result<(), EnginesError> {
        for model in &self.config.models.preload {
            let found = self.catalog.find(model).map(|wanted| wanted.entry.stage);
            let stage = found.map_err(|error| StageFailure::new("models", model, error))?;
            match stage {
                Stage::Vad => drop(self.named::<dyn Vad>(model)?),
                Stage::Stt => drop(self.named::<dyn Stt>(model)?),
                Stage::Tts => drop(self.named::<dyn Tts>(model)?),
                Stage::Turn => drop(self.named::<dyn TurnModel>(model)?),
            }
        }
        Ok(())
    }
}

const PANICKED: &str = "the engine panicked during loading";
const OTHER_STAGE: &str = "this model serves another stage";

fn active_stage<'a, S: ?Sized>(
    served: Option<&'a Vec<EngineInUse>>,
    stage: &str,
    engine: Option<&'a Arc<S>>,
) -> Option<(&'a EngineInUse, &'a Arc<S>)> {
    Some((served?.iter().find(|served| served.stage == stage)?, engine?))
}

fn logged<T: ?Sized>(
    stage: &'static str,
    engine: &str,
    make: impl FnOnce() -> Result<Arc<T>, StageFailure>,
) -> Result<Arc<T>, StageFailure> {
    tracing::info!(stage, engine, "loading");
    let made = make()?;
    tracing::info!(stage, engine, "ready");
    Ok(made)
}

/// A panic during the creation of an engine is a failure of its stage.
fn joined<T>(
    stage: &'static str,
    thread: thread::ScopedJoinHandle<'_, Result<T, StageFailure>>,
) -> Result<T, StageFailure> {
    thread.join().unwrap_or_else(|_| Err(StageFailure::new(stage, "", PANICKED)))
}
