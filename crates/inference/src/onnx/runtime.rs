//! The open runtime, and loading a model with it.

use super::provider::Placements;
use super::{Model, OnnxConfig, OnnxError, Provider, Signature, library};
use ort::ErrorCode;
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

/// ONNX Runtime, open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runtime {
    environment: Environment,
    config: Arc<OnnxConfig>,
}

/// How one model is loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelOptions {
    /// The inputs and outputs it must have; `None`: any.
    pub signature: Option<&'static Signature>,
    /// Threads of one run; `None`: as configured. 1 where many small runs share the cores.
    pub intra_threads: Option<usize>,
    /// Whether it runs on the processor whatever the configuration says: for models too small for a GPU.
    pub on_cpu: bool,
}

impl ModelOptions {
    /// The configured options, for a model of that signature.
    pub fn of(signature: &'static Signature) -> Self {
        Self { signature: Some(signature), ..Self::default() }
    }
}

/// Why a model could not be loaded on one provider.
enum Refusal {
    /// The model is at fault, on any provider.
    Model(OnnxError),
    /// The provider is at fault.
    Provider(String),
}

impl Runtime {
    /// Opens the library that `config` names, or finds it: the environment variable `ORT_DYLIB_PATH`, the program's own
    /// folder, the folders that `make onnxruntime` and `make onnxruntime-gpu` fill. A process opens it once; later calls
    /// get the same one, with their own settings for the models they load. Blocks for some 60 ms the first time.
    ///
    /// # Errors
    /// [`OnnxError::NoLibrary`], [`OnnxError::BadLibrary`], and [`OnnxError::OtherLibrary`] when another one is open.
    pub fn open(config: &OnnxConfig) -> Result<Self, OnnxError> {
        Ok(Self { environment: library::open(config)?, config: Arc::new(config.clone()) })
    }

    /// Loads a model and checks that it is of the family that `options` name. One line of the log says what it runs on.
    /// Blocks, for seconds where it is large, for minutes where TensorRT builds its engines.
    ///
    /// # Errors
    /// [`OnnxError::Unreadable`], [`OnnxError::Corrupt`], [`OnnxError::WrongModel`], and [`OnnxError::NotServed`] when a
    /// required provider does not serve it.
    pub fn load(&self, path: &Path, options: &ModelOptions) -> Result<Model, OnnxError> {
        std::fs::File::open(path).map_err(|source| OnnxError::Unreadable { path: path.into(), source })?;
        let requested = if options.on_cpu { &[Provider::Cpu][..] } else { Provider::requested(&self.config) };
        let mut refused = None;
        for provider in requested {
            let (session, nodes) = match self.attempt(path, *provider, options) {
                Ok(loaded) => loaded,
                Err(Refusal::Model(error)) => return Err(error),
                Err(Refusal::Provider(message)) => {
                    tracing::warn!(model = %path.display(), %provider, "does not serve this model: {message}");
                    refused = Some(OnnxError::NotServed { provider: *provider, path: path.into(), message });
                    continue;
                }
            };
            let n_threads = self.n_threads(options);
            let model = Model::new(path, session, *provider, self.config.device_id as i32, n_threads);
            if let Some(signature) = options.signature {
                model.check(signature)?;
            }
            tracing::info!(model = %path.display(), %provider, nodes, "model loaded");
            return Ok(model);
        }
        Err(refused.expect("at least one provider was tried"))
    }

    /// Threads of one run.
    fn n_threads(&self, options: &ModelOptions) -> usize {
        match options.intra_threads.unwrap_or(self.config.intra_threads) {
            0 => available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }

    /// The memory that a model may take on its GPU, where the configuration limits it.
    pub fn gpu_memory_bytes(&self) -> Option<usize> {
        (self.config.gpu_memory_mib > 0).then_some(self.config.gpu_memory_mib as usize * 1024 * 1024)
    }

    /// Loads a small graph that is part of the program, on the provider and the device of another model. `name` is for
    /// messages.
    ///
    /// # Errors
    /// [`OnnxError::Corrupt`] where the graph is none, [`OnnxError::NotServed`] where the provider does not serve it.
    pub fn load_bytes(&self, name: &str, graph: &[u8], beside: &Model) -> Result<Model, OnnxError> {
        let path = Path::new(name);
        let provider = beside.provider();
        let made = self
            .builder(provider, &ModelOptions::default(), &Arc::default())
            .and_then(|mut builder| builder.commit_from_memory(graph));
        match made.map_err(|error| refusal(path, provider, &error)) {
            Ok(session) => Ok(Model::new(path, session, provider, beside.device_id(), beside.n_threads())),
            Err(Refusal::Model(error)) => Err(error),
            Err(Refusal::Provider(message)) => Err(OnnxError::NotServed { provider, path: path.into(), message }),
        }
    }

    /// A session on one provider, and how many of its nodes each provider got.
    fn attempt(&self, path: &Path, provider: Provider, options: &ModelOptions) -> Result<(Session, String), Refusal> {
        if !provider.is_in_library() {
            let message = "the library that is open was built without it; run `make onnxruntime-gpu`".into();
            return Err(Refusal::Provider(message));
        }
        if provider == Provider::TensorRt
            && let Err(error) = std::fs::create_dir_all(&self.config.cache_dir)
        {
            return Err(Refusal::Provider(format!("onnx.cache_dir {:?}: {error}", self.config.cache_dir)));
        }
        let placements: Arc<Mutex<Placements>> = Arc::default();
        let builder = self.builder(provider, options, &placements);
        let mut builder = builder.map_err(|error| Refusal::Provider(error.to_string()))?;
        let session = builder.commit_from_file(path).map_err(|error| refusal(path, provider, &error))?;
        if provider == Provider::Cpu {
            return Ok((session, "all".into()));
        }
        let placed = placements.lock().unwrap_or_else(PoisonError::into_inner);
        if placed.pass_over(provider) {
            return Err(Refusal::Provider(format!("none of its nodes is on it: {placed}")));
        }
        Ok((session, placed.to_string()))
    }

    fn builder(
        &self,
        provider: Provider,
        options: &ModelOptions,
        placements: &Arc<Mutex<Placements>>,
    ) -> ort::Result<SessionBuilder> {
        let level = match self.config.graph_optimization.as_str() {
            "none" => GraphOptimizationLevel::Disable,
            "basic" => GraphOptimizationLevel::Level1,
            "extended" => GraphOptimizationLevel::Level2,
            _ => GraphOptimizationLevel::All,
        };
        // Spinning threads take the cores from the rest of the process.
        let builder = Session::builder(&self.environment)?
            .with_optimization_level(level)?
            .with_intra_threads(options.intra_threads.unwrap_or(self.config.intra_threads))?
            .with_intra_op_spinning(false)?
            .with_execution_providers(provider.registered(&self.config))?;
        if provider == Provider::Cpu {
            return Ok(builder);
        }
        // Only the runtime's most verbose log names the node placement; runs are quiet.
        let placements = placements.clone();
        Ok(builder.with_log_level(LogLevel::Verbose)?.with_logger(Arc::new(move |level, _, _, place, message| {
            placements.lock().unwrap_or_else(PoisonError::into_inner).note(message);
            library::log(level, place, message);
        }))?)
    }
}

/// Whether the model or the provider is at fault for a failure to load.
fn refusal(path: &Path, provider: Provider, error: &ort::Error) -> Refusal {
    let of_the_file = matches!(
        error.code(),
        ErrorCode::InvalidProtobuf | ErrorCode::NoModel | ErrorCode::InvalidGraph | ErrorCode::NoSuchFile
    );
    // A model that the processor cannot load is invalid.
    if of_the_file || provider == Provider::Cpu {
        return Refusal::Model(OnnxError::Corrupt { path: path.into(), message: error.to_string() });
    }
    Refusal::Provider(error.to_string())
}
