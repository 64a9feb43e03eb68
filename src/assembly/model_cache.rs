//! The cache of loaded models: one shared copy of each; the least recently used is evicted.
//!
//! [`super::EngineManager`] takes engines from it. A model that is in use is never evicted. The cache does not depend
//! on stages and loads nothing by itself: the caller supplies the load function. All methods block,
//! [`ModelCache::take`] for as long as loading takes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A value that is loaded once and shared by cloning.
pub trait CachedValue: Clone {
    /// Whether there are clones besides this one.
    fn is_in_use(&self) -> bool;
}

/// Limits of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of models.
    pub max_loaded: usize,
    /// Maximum total size in bytes; `None`: no limit.
    pub max_bytes: Option<u64>,
}

/// Why a model is not available.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ModelCacheError<X> {
    /// There is no room, and all cached models are in use.
    #[error(
        "no memory for {name}: {n_in_use} models with {used_mb} MB are in use; raise models.max_loaded or \
         models.memory_budget_mb"
    )]
    Full {
        /// The requested model.
        name: String,
        /// Number of models in use.
        n_in_use: usize,
        /// Their total size in MB (10^6 bytes).
        used_mb: u64,
    },
    /// The load function failed.
    #[error(transparent)]
    Load(X),
}

/// A least-recently-used cache of models by name.
pub struct ModelCache<T> {
    limits: Limits,
    state: Mutex<CacheState<T>>,
}

struct CacheState<T> {
    slots: HashMap<String, Slot<T>>,
    /// Logical clock: counts calls of `take`; each slot stores the time of its last use.
    now: u64,
}

struct Slot<T> {
    /// Locked during loading, so that a second caller waits and shares the result; `None` until then.
    item: Arc<Mutex<Option<T>>>,
    bytes: u64,
    last_used: u64,
}

impl<T: CachedValue> Slot<T> {
    /// Whether it must not be evicted: a caller is loading it, waiting for it, or using it.
    fn is_in_use(&self) -> bool {
        if Arc::strong_count(&self.item) > 1 {
            return true;
        }
        match self.item.try_lock() {
            Ok(item) => item.as_ref().is_some_and(T::is_in_use),
            // Its load, or one before, panicked.
            Err(TryLockError::Poisoned(item)) => item.into_inner().as_ref().is_some_and(T::is_in_use),
            Err(TryLockError::WouldBlock) => true,
        }
    }
}

impl<T: CachedValue> ModelCache<T> {
    /// An empty cache.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::new(CacheState { slots: HashMap::new(), now: 0 }) }
    }

    /// The cached model `name`, or a new one created by `load`, which takes about `bytes`. Evicts models that are not
    /// in use, the least recently used first, to make room. Concurrent calls with one name load it once. `in_place_of`
    /// names a model that the new one replaces: it does not count towards the limits, although it stays loaded until
    /// its last user drops it.
    pub fn take<X>(
        &self,
        name: &str,
        bytes: u64,
        in_place_of: Option<&str>,
        load: impl FnOnce() -> Result<T, X>,
    ) -> Result<T, ModelCacheError<X>> {
        let (item, left) = self.slot(name, bytes, in_place_of)?;
        // Dropping an engine joins its threads, which must not happen while the cache is locked.
        drop(left);
        // A load that panicked has left `None`, so the poisoned lock is safe to use.
        let mut place = item.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(item) = place.as_ref() {
            return Ok(item.clone());
        }
        match load() {
            Ok(made) => {
                *place = Some(made.clone());
                Ok(made)
            }
            Err(error) => {
                drop(place);
                self.forget_empty(name, item);
                Err(ModelCacheError::Load(error))
            }
        }
    }

    /// Removes the model from the cache unless it is in use; returns whether it is no longer cached.
    pub fn forget(&self, name: &str) -> bool {
        let mut state = self.lock();
        if state.slots.get(name).is_some_and(Slot::is_in_use) {
            return false;
        }
        let left = state.slots.remove(name);
        drop(state);
        drop(left);
        true
    }

    /// The names of the cached models, in no particular order.
    pub fn names(&self) -> Vec<String> {
        self.lock().slots.keys().cloned().collect()
    }

    /// The slot for `name`, and the slots evicted for it.
    #[allow(clippy::type_complexity)]
    fn slot<X>(
        &self,
        name: &str,
        bytes: u64,
        in_place_of: Option<&str>,
    ) -> Result<(Arc<Mutex<Option<T>>>, Vec<Slot<T>>), ModelCacheError<X>> {
        let mut state = self.lock();
        state.now += 1;
        let now = state.now;
        if let Some(slot) = state.slots.get_mut(name) {
            slot.last_used = now;
            return Ok((slot.item.clone(), Vec::new()));
        }
        let idle = state.slots.iter().filter(|(_, slot)| !slot.is_in_use());
        let mut idle: Vec<(u64, String)> = idle.map(|(name, slot)| (slot.last_used, name.clone())).collect();
        idle.sort_unstable();
        // Where all of them are not enough, none leaves.
        let n_leaving = (0..=idle.len()).find(|n| self.has_room(&state, bytes, in_place_of, &idle[..*n]));
        let Some(n_leaving) = n_leaving else {
            let in_use = || staying(&state, &idle);
            let used_mb = in_use().map(|(_, slot)| slot.bytes).sum::<u64>() / 1_000_000;
            return Err(ModelCacheError::Full { name: name.into(), n_in_use: in_use().count(), used_mb });
        };
        let mut left = Vec::new();
        for (_, oldest) in idle.into_iter().take(n_leaving) {
            tracing::info!(model = oldest, "unloaded to make room");
            left.extend(state.slots.remove(&oldest));
        }
        let item = Arc::new(Mutex::new(None));
        state.slots.insert(name.into(), Slot { item: item.clone(), bytes, last_used: now });
        Ok((item, left))
    }

    /// Whether there is room without the models that leave.
    fn has_room(
        &self,
        state: &CacheState<T>,
        bytes: u64,
        in_place_of: Option<&str>,
        leaving: &[(u64, String)],
    ) -> bool {
        let staying = || staying(state, leaving).filter(|(name, _)| Some(name.as_str()) != in_place_of);
        let used: u64 = staying().map(|(_, slot)| slot.bytes).sum();
        staying().count() < self.limits.max_loaded && self.limits.max_bytes.is_none_or(|max| used + bytes <= max)
    }

    /// Removes a slot that was never filled, unless another caller waits to fill it.
    fn forget_empty(&self, name: &str, item: Arc<Mutex<Option<T>>>) {
        let mut state = self.lock();
        drop(item);
        let is_empty = |slot: &Slot<T>| slot.item.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if state.slots.get(name).is_some_and(|slot| Arc::strong_count(&slot.item) == 1 && is_empty(slot)) {
            state.slots.remove(name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState<T>> {
        self.state.lock().expect("no panic while locked")
    }
}

/// The slots without those of the models that leave.
fn staying<'a, T>(
    state: &'a CacheState<T>,
    leaving: &'a [(u64, String)],
) -> impl Iterator<Item = (&'a String, &'a Slot<T>)> {
    state.slots.iter().filter(move |(name, _)| leaving.iter().all(|(_, one)| one != *name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    /// A fake engine.
    #[derive(Clone, Debug)]
    struct Puppet(Arc<String>);

    impl CachedValue for Puppet {
        fn is_in_use(&self) -> bool {
            Arc::strong_count(&self.0) > 1
        }
    }

    fn cache(max_loaded: usize, max_bytes: Option<u64>) -> ModelCache<Puppet> {
        ModelCache::new(Limits { max_loaded, max_bytes })
    }

    fn take(cache: &ModelCache<Puppet>, name: &str, bytes: u64) -> Result<Puppet, ModelCacheError<&'static str>> {
        cache.take(name, bytes, None, || Ok(Puppet(Arc::new(name.into()))))
    }

    #[track_caller]
    fn holds(cache: &ModelCache<Puppet>, expect: &[&str]) {
        let mut names = cache.names();
        names.sort();
        assert_eq!(names, expect);
    }

    #[test]
    fn one_copy_is_shared() {
        let cache = cache(2, None);
        let a = take(&cache, "a", 1).unwrap();
        let b = take(&cache, "a", 1).unwrap();
        assert!(Arc::ptr_eq(&a.0, &b.0));
    }

    #[test]
    fn the_least_recently_used_leaves_and_never_one_in_use() {
        let cache = cache(2, None);
        take(&cache, "a", 1).unwrap();
        let b = take(&cache, "b", 1).unwrap();
        take(&cache, "a", 1).unwrap();
        // b was used before a, but is in use.
        take(&cache, "c", 1).unwrap();
        holds(&cache, &["b", "c"]);
        drop(b);
        take(&cache, "d", 1).unwrap();
        holds(&cache, &["c", "d"]);
    }

    #[test]
    fn memory_is_a_bound_of_its_own() {
        let cache = cache(9, Some(10_000_000));
        take(&cache, "a", 4_000_000).unwrap();
        take(&cache, "b", 4_000_000).unwrap();
        let c = take(&cache, "c", 6_000_000).unwrap();
        holds(&cache, &["b", "c"]);
        let error = take(&cache, "d", 5_000_000).unwrap_err();
        assert_eq!(error, ModelCacheError::Full { name: "d".into(), n_in_use: 1, used_mb: 6 });
        holds(&cache, &["b", "c"]);
        drop(c);
        take(&cache, "d", 10_000_000).unwrap();
        holds(&cache, &["d"]);
        assert!(matches!(take(&cache, "huge", 10_000_001), Err(ModelCacheError::Full { .. })));
        // None leaves for what finds no room even so.
        holds(&cache, &["d"]);
    }

    #[test]
    fn what_cannot_be_loaded_keeps_no_place() {
        let cache = cache(1, None);
        assert_eq!(cache.take("a", 1, None, || Err("broken")).unwrap_err(), ModelCacheError::Load("broken"));
        holds(&cache, &[]);
        take(&cache, "b", 1).unwrap();
        assert!(cache.forget("b") && cache.forget("b"));
    }

    #[test]
    fn a_load_that_panicked_holds_no_place_and_the_model_can_leave_later() {
        let cache = cache(1, None);
        let panics = || cache.take("a", 1, None, || -> Result<Puppet, &'static str> { panic!("on purpose") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        take(&cache, "b", 1).unwrap();
        holds(&cache, &["b"]);
        assert!(cache.forget("b"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        let a = take(&cache, "a", 1).unwrap();
        assert!(!cache.forget("a"), "it is in use");
        drop(a);
        take(&cache, "b", 1).unwrap();
        holds(&cache, &["b"]);
    }

    #[test]
    fn who_waited_for_a_load_that_failed_fills_the_same_place() {
        let cache = &cache(1, None);
        std::thread::scope(|scope| {
            let ((go, wait), (loads, loading)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
            let broken = move || {
                loads.send(()).unwrap();
                wait.recv().unwrap();
                Err("broken")
            };
            let first = scope.spawn(move || cache.take("a", 1, None, broken));
            loading.recv().unwrap();
            let second = scope.spawn(move || take(cache, "a", 1));
            while Arc::strong_count(&cache.lock().slots["a"].item) < 3 {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap_err(), ModelCacheError::Load("broken"));
            let second = second.join().unwrap().unwrap();
            let third = take(cache, "a", 1).unwrap();
            assert!(Arc::ptr_eq(&second.0, &third.0), "it is cached");
        });
    }

    #[test]
    fn two_takers_load_it_once_and_it_stays_while_it_loads() {
        let cache = cache(1, None);
        let (n_loads, (go, wait)) = (AtomicUsize::new(0), mpsc::channel::<()>());
        let wait = Mutex::new(wait);
        let load = || {
            n_loads.fetch_add(1, Ordering::Relaxed);
            wait.lock().unwrap().recv().unwrap();
            Ok::<_, &str>(Puppet(Arc::new("a".into())))
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| cache.take("a", 1, None, load));
            while n_loads.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let second = scope.spawn(|| cache.take("a", 1, None, load));
            assert!(matches!(take(&cache, "b", 1), Err(ModelCacheError::Full { .. })), "its place is taken");
            assert!(!cache.forget("a"));
            go.send(()).unwrap();
            let first = first.join().unwrap().unwrap();
            let second = second.join().unwrap().unwrap();
            assert!(Arc::ptr_eq(&first.0, &second.0));
        });
        assert_eq!(n_loads.load(Ordering::Relaxed), 1);
    }
}
