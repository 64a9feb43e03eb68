//! The server's models: those that serve, and those that requests name.
//!
//! [`super::parts`] holds one instance; the speech API asks it for engines, the API of the pages for models. Engines
//! are loaded on blocking threads. It pulls no model.

use crate::assembly::{EngineInUse, EngineManager, StageFailure, without_precision};
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_registry::{OnDisk, Stage, locate, on_disk};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// See the module.
pub(in crate::server) struct Models {
    manager: Option<Arc<EngineManager>>,
    served: ArcSwap<Vec<EngineInUse>>,
}

impl Models {
    /// `manager`: `None` if the engines are fixed.
    pub(in crate::server) fn new(manager: Option<Arc<EngineManager>>, served: Vec<EngineInUse>) -> Self {
        Self { manager, served: ArcSwap::from_pointee(served) }
    }

    /// The TTS engine of a model that a request names, loaded if necessary; `None` if the model is not one of that
    /// stage or not on disk.
    pub(in crate::server) async fn tts(&self, model: &str) -> Option<Result<Arc<dyn Tts>, StageFailure>> {
        self.engine(Stage::Tts, model, EngineManager::tts).await
    }

    /// The STT engine of a model, like [`Models::tts`].
    pub(in crate::server) async fn stt(&self, model: &str) -> Option<Result<Arc<dyn Stt>, StageFailure>> {
        self.engine(Stage::Stt, model, EngineManager::stt).await
    }

    async fn engine<T: Send + 'static>(
        &self,
        stage: Stage,
        model: &str,
        load: impl FnOnce(&EngineManager, &str) -> Result<T, StageFailure> + Send + 'static,
    ) -> Option<Result<T, StageFailure>> {
        let manager = self.manager()?;
        let model = model.to_owned();
        let load = move || {
            let wanted = manager.catalog().find(&model).ok()?;
            let serves = wanted.entry.stage == stage && manager.knows(stage, &wanted.entry.family);
            let is_here = serves && locate(&manager.config().models, wanted).is_ok();
            is_here.then(|| load(&manager, &model))
        };
        tokio::task::spawn_blocking(load).await.ok().flatten()
    }

    /// The registry's STT and TTS models on disk that a request may name, as name, stage and engine. Reads the disk on
    /// a blocking thread.
    pub(in crate::server) async fn here(&self) -> Vec<(String, Stage, String)> {
        let Some(manager) = self.manager() else { return Vec::new() };
        let read = move || {
            let entries =
                manager.catalog().entries().iter().filter(|entry| matches!(entry.stage, Stage::Stt | Stage::Tts));
            let mut here = Vec::new();
            for entry in entries.filter(|entry| manager.knows(entry.stage, &entry.family)) {
                for variant in &entry.variants {
                    if matches!(on_disk(&manager.config().models, entry, variant), OnDisk::Whole { .. }) {
                        let name = format!("{}:{}", entry.name, variant.precision);
                        here.push((name, entry.stage, entry.family.clone()));
                    }
                }
            }
            here
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// The engine manager; `None` if the engines are fixed.
    pub(in crate::server) fn manager(&self) -> Option<Arc<EngineManager>> {
        self.manager.clone()
    }

    /// The engines and models that serve new sessions.
    pub(in crate::server) fn served(&self) -> Arc<Vec<EngineInUse>> {
        self.served.load_full()
    }

    /// These serve new sessions from now on.
    pub(in crate::server) fn serve(&self, served: Vec<EngineInUse>) {
        self.served.store(Arc::new(served));
    }

    /// Forgets why a removed model could not be loaded.
    pub(in crate::server) fn forget(&self, name: &str) {
        self.served.rcu(|served| {
            let mut served = served.as_ref().clone();
            served
                .iter_mut()
                .for_each(|served| served.passed_over.retain(|passed| without_precision(&passed.model) != name));
            served
        });
    }
}
