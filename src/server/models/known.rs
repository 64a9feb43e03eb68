//! What the server knows of models: those that serve, those that requests name, and the pulls under way.
//!
//! [`App`](crate::server::app::App) holds one. Engines are loaded on threads for what blocks; [`super::pulls`] keeps the
//! pulls in here.

use super::pulls::State;
use crate::assembly::{EngineManager, Served, StageFailure};
use antiphon_engine_api::stt::Stt;
use antiphon_engine_api::tts::Tts;
use antiphon_registry::{OnDisk, Stage, locate, on_disk};
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// See the module.
pub(in crate::server) struct Models {
    manager: Option<Arc<EngineManager>>,
    pub(super) served: ArcSwap<Vec<Served>>,
    /// The latest pull of each model; as many as there are models at most.
    pub(super) pulls: Mutex<BTreeMap<String, watch::Receiver<State>>>,
}

impl Models {
    /// `None`: engines were given that nothing is to change.
    pub(in crate::server) fn new(manager: Option<Arc<EngineManager>>, served: Vec<Served>) -> Self {
        Self { manager, served: ArcSwap::from_pointee(served), pulls: Mutex::default() }
    }

    /// The voice engine of a model that a request names; `None` where it is no model of that stage, or not on the disk.
    pub(in crate::server) async fn tts(&self, model: &str) -> Option<Result<Arc<dyn Tts>, StageFailure>> {
        self.engine(Stage::Tts, model, EngineManager::tts).await
    }

    /// The recognizer of a model, as [`Models::tts`].
    pub(in crate::server) async fn stt(&self, model: &str) -> Option<Result<Arc<dyn Stt>, StageFailure>> {
        self.engine(Stage::Stt, model, EngineManager::stt).await
    }

    async fn engine<T: Send + 'static>(
        &self,
        stage: Stage,
        model: &str,
        load: impl FnOnce(&EngineManager, &str) -> Result<T, StageFailure> + Send + 'static,
    ) -> Option<Result<T, StageFailure>> {
        let (manager, model) = (self.manager()?, model.to_owned());
        let load = move || {
            let wanted = manager.catalog().find(&model).ok()?;
            let serves = wanted.entry.stage == stage && manager.knows(stage, &wanted.entry.family);
            let is_here = serves && locate(&manager.config().models, wanted).is_ok();
            is_here.then(|| load(&manager, &model))
        };
        tokio::task::spawn_blocking(load).await.ok().flatten()
    }

    /// The models of the registry that a request may name and that are on the disk, by name with what runs them. Reads the
    /// folder on a thread for that.
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

    /// Where the engines come from; `None` where they stay as they are.
    pub(in crate::server) fn manager(&self) -> Option<Arc<EngineManager>> {
        self.manager.clone()
    }

    /// What serves new sessions.
    pub(in crate::server) fn served(&self) -> Arc<Vec<Served>> {
        self.served.load_full()
    }
}
