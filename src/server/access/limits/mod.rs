//! Rate limits and usage: by API key, by client address and by session.
//!
//! [`Limits`] keeps a token bucket for each [`Resource`] of each key and address ([`bucket`]), and counts what keys use
//! ([`usage`]). A request or session gets a [`Consumer`], its key's and its address's account, once; from then on it
//! takes no lock. [`meter`] implements the session crate's port on it, [`super::limits_http`] is the middleware of
//! requests, [`peer_sync`] reports to the cluster's other hubs what keys used here. How many sessions and connections there
//! are at once is limited elsewhere (`reservations`, `connection_slots`). This module closes nothing and writes no log.
//!
//! The table of keys holds the configured keys. That of addresses is bounded by [`MAX_ADDRESSES`]: where it is full, the accounts
//! that are full again go, which loses nothing, then the one that is nearest to that. An account that a session or request holds
//! stays. So a client that floods the hub from one address keeps its account, and one that changes its address gains nothing, since a
//! new address has a full account anyway.

mod bucket;
pub(super) mod go_duration;
mod meter;
mod peer_sync;
mod resource;
mod usage;

pub(in crate::server) use bucket::Level;
pub(in crate::server) use meter::SessionMeter;
pub(in crate::server) use peer_sync::{Consumption, share};
pub(in crate::server) use resource::Resource;
pub(in crate::server) use usage::Count;

use super::keys::Keys;
use crate::config::LimitsConfig;
use crate::server::edge::client::Client;
use antiphon_telemetry::{Exposition, Family};
use antiphon_types::{Compute, KeyId, Requester};
use axum::extract::Request;
use bucket::{Bucket, Now};
use resource::Rates;
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use usage::{Shown, Totals, Usage};

/// Addresses in the table, about 300 bytes each.
const MAX_ADDRESSES: usize = 4_096;
/// Keys that the metrics name; the others are counted together.
const MAX_LABELS: usize = 64;
/// The name under which those others, and keys that are gone, are counted.
const OTHERS: &str = "other";
/// The name of clients of a hub without keys.
const ANYBODY: &str = "anonymous";

/// See the module.
pub(in crate::server) struct Limits {
    config: LimitsConfig,
    clock: Clock,
    keys: Mutex<HashMap<Option<KeyId>, Arc<Account>>>,
    /// What keys used that are not valid any more.
    gone: Usage,
    addresses: Mutex<HashMap<IpAddr, Arc<Buckets>>>,
    of_address: Rates,
}

/// The time of all buckets.
#[derive(Clone, Copy)]
struct Clock(Instant);

/// One bucket for each resource.
struct Buckets([Bucket; Resource::ALL.len()]);

/// The limits and the usage of one API key.
struct Account {
    name: String,
    buckets: Buckets,
    usage: Usage,
    /// What was used here and not reported to the other hubs yet.
    unreported: [AtomicU64; Resource::ALL.len()],
    /// Whether the metrics name it or count it with the others. Decided once, so that no counter ever falls.
    is_named: OnceLock<bool>,
}

/// What a request or session is charged to. Cheap to clone.
#[derive(Clone)]
pub(in crate::server) struct Consumer {
    clock: Clock,
    key: Arc<Account>,
    /// `None`: the address stands for many clients.
    address: Option<Arc<Buckets>>,
}

/// The consumer of an HTTP request, which the middleware adds to its extensions.
#[derive(Clone)]
pub(in crate::server) struct Spender {
    pub(in crate::server) consumer: Consumer,
    pub(in crate::server) client: Client,
    pub(in crate::server) owner: Option<KeyId>,
}

impl Spender {
    /// The spender of a request of a limited route.
    pub(in crate::server) fn of(request: &Request) -> Self {
        request.extensions().get::<Self>().expect("the middleware of the limits is before the handlers").clone()
    }

    /// What its request costs, from here on.
    pub(in crate::server) fn charge(&self, resource: Resource, count: Count, amount: u64) -> Charge {
        self.consumer.spend(resource, amount);
        Charge { consumer: self.consumer.clone(), of: (resource, count), amount }
    }

    /// Whose its requests to the engines are: the key's, or the address's.
    pub(in crate::server) fn requester(&self) -> Requester {
        match self.owner {
            Some(owner) => owner.into(),
            None => Requester::of(&self.client.network()),
        }
    }
}

/// What a request costs, which is taken from its limits at once. Dropping it counts that as used: a client that goes away
/// meanwhile pays.
pub(in crate::server) struct Charge {
    consumer: Consumer,
    of: (Resource, Count),
    amount: u64,
}

impl Charge {
    /// It costs this amount, where that is more than it was charged with.
    pub(in crate::server) fn at_least(&mut self, amount: u64) {
        let more = amount.saturating_sub(self.amount);
        if more > 0 {
            self.consumer.spend(self.of.0, more);
            self.amount = amount;
        }
    }

    /// It costs nothing: the request failed.
    pub(in crate::server) fn waive(&mut self) {
        self.consumer.give_back(self.of.0, std::mem::take(&mut self.amount));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.consumer.count(self.of.1, self.amount);
    }
}

/// A limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct UsedUp {
    pub(in crate::server) resource: Resource,
    /// Whose limit.
    pub(in crate::server) of: Whose,
    /// Time until there is at least one unit of it again.
    pub(in crate::server) wait: Duration,
}

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Whose {
    Session,
    Key,
    Address,
}

/// The usage of one key as `/api/usage` shows it.
#[derive(Serialize)]
pub(in crate::server) struct KeyUsage {
    /// The key's name.
    key: String,
    /// Since the hub's start.
    total: Shown,
    /// In the last full minute, and in the last 60 of them.
    last_minute: Shown,
    last_hour: Shown,
}

impl Limits {
    pub(in crate::server) fn new(config: LimitsConfig, keys: &Keys) -> Self {
        let of_address = resource::of_address(&config);
        let limits = Self {
            config,
            clock: Clock(Instant::now()),
            keys: Mutex::default(),
            gone: Usage::default(),
            addresses: Mutex::default(),
            of_address,
        };
        limits.replace(keys);
        limits
    }

    /// Other keys are valid from now on. Those that stay keep their usage and what they have used of their limits.
    pub(in crate::server) fn replace(&self, keys: &Keys) {
        let mut accounts = self.keys.lock().expect("no panic while locked");
        let mut before = std::mem::take(&mut *accounts);
        for (id, name, own) in keys.described() {
            let rates = resource::of_key(&self.config, own);
            if let Some(account) = accounts.get(&Some(id)) {
                // A second entry of the same key.
                account.buckets.set(&rates);
                continue;
            }
            let account = match before.remove(&Some(id)) {
                Some(account) if account.name == name => account,
                // A key's name is fixed for the life of an account; renaming one is rare.
                Some(account) => Arc::new(account.renamed(name)),
                None => Arc::new(Account::new(name, rates)),
            };
            account.buckets.set(&rates);
            accounts.insert(Some(id), account);
        }
        let anybody = before.remove(&None).unwrap_or_else(|| Arc::new(Account::new(ANYBODY.into(), Rates::default())));
        accounts.insert(None, anybody);
        for account in before.into_values() {
            self.gone.add_all(account.usage.totals());
        }
    }

    /// The account of a caller. `owner` is valid; one that was removed this moment gets an account that no page shows.
    pub(in crate::server) fn consumer(&self, owner: Option<KeyId>, client: Client) -> Consumer {
        let key = self.keys.lock().expect("no panic while locked").get(&owner).cloned();
        let key = key.unwrap_or_else(|| {
            Arc::new(Account::new(OTHERS.into(), resource::of_key(&self.config, &Default::default())))
        });
        let stands_for_many = client.is_shared || client.address.is_loopback();
        let address = (!stands_for_many).then(|| self.address(client.network()));
        Consumer { clock: self.clock, key, address }
    }

    fn address(&self, network: IpAddr) -> Arc<Buckets> {
        let now = self.clock.now();
        let mut table = self.addresses.lock().expect("no panic while locked");
        if let Some(buckets) = table.get(&network) {
            return buckets.clone();
        }
        if table.len() >= MAX_ADDRESSES {
            table.retain(|_, buckets| Arc::strong_count(buckets) > 1 || !buckets.is_full(now));
            let idle = table.iter().filter(|(_, buckets)| Arc::strong_count(buckets) == 1);
            let least = idle.min_by_key(|(_, buckets)| buckets.used(now)).map(|(address, _)| *address);
            if let Some(least) = least.filter(|_| table.len() >= MAX_ADDRESSES) {
                table.remove(&least);
            }
        }
        let buckets = Arc::new(Buckets::new(&self.of_address));
        // Where all accounts are in use, this one is forgotten with its session or request.
        if table.len() < MAX_ADDRESSES {
            table.insert(network, buckets.clone());
        }
        buckets
    }

    /// What limits one session of this consumer. `on_refused` learns of each response that is refused.
    pub(in crate::server) fn session(
        &self,
        consumer: Consumer,
        on_refused: impl Fn(UsedUp) + Send + Sync + 'static,
    ) -> SessionMeter {
        SessionMeter::new(consumer, Buckets::new(&resource::of_session(&self.config)), Box::new(on_refused))
    }

    /// Keeps the usage of each full minute, until `stopped`.
    pub(in crate::server) async fn keep_minutes(&self, stopped: CancellationToken) {
        let mut minutes = tokio::time::interval(Duration::from_secs(60));
        minutes.tick().await;
        loop {
            tokio::select! {
                _ = minutes.tick() => {}
                () = stopped.cancelled() => return,
            }
            for account in self.accounts() {
                account.1.usage.minute_ended();
            }
        }
    }

    /// The usage of all keys, or of one, by name.
    pub(in crate::server) fn usage(&self, of: Option<Option<KeyId>>) -> Vec<KeyUsage> {
        let mut accounts = self.accounts();
        accounts.retain(|(id, account)| match of {
            Some(wanted) => *id == wanted,
            // Where there are keys, no caller is anonymous.
            None => id.is_some() || account.usage.totals() != Totals::default(),
        });
        let shown = |(_, account): (_, Arc<Account>)| {
            let (minute, hour) = account.usage.recent();
            let total = account.usage.totals().into();
            KeyUsage { key: account.name.clone(), total, last_minute: minute.into(), last_hour: hour.into() }
        };
        accounts.into_iter().map(shown).collect()
    }

    /// The counters by key in Prometheus' format: at most [`MAX_LABELS`] names, of those that used something first; the others,
    /// and keys that are gone, together.
    pub(in crate::server) fn metrics(&self) -> String {
        let mut accounts: Vec<(Arc<Account>, Totals)> =
            self.accounts().into_iter().map(|(_, account)| (account.clone(), account.usage.totals())).collect();
        // Those with a name, then those that are to get one, the ones that used most first.
        accounts.sort_by_key(|(account, totals)| {
            let used = totals.get(Count::Requests) + totals.get(Count::Sessions) + totals.get(Count::Responses);
            (account.is_named.get() != Some(&true), *totals == Totals::default(), std::cmp::Reverse(used))
        });
        let mut named = Vec::new();
        let mut others = self.gone.totals();
        let all_fit = accounts.len() <= MAX_LABELS;
        for (account, totals) in accounts {
            let is_named = match totals == Totals::default() {
                true => all_fit,
                false => *account.is_named.get_or_init(|| named.len() < MAX_LABELS),
            };
            match is_named {
                true => named.push((account.name.clone(), totals)),
                false => others = others.plus(totals),
            }
        }
        named.sort_by(|one, other| one.0.cmp(&other.0));
        named.push((OTHERS.into(), others));
        let mut text = Exposition::default();
        for count in Count::ALL {
            let (name, help) = count.metric();
            let family = Family::counter(name, help).by(&["key"]);
            let values = named.iter().map(|(key, totals)| ([key.as_str()], totals.get(count)));
            match count.in_a_second() {
                None => text.values(&family, values),
                Some(unit) => text.values(&family, values.map(|(key, n)| (key, n as f64 / unit))),
            }
        }
        text.into_text()
    }

    /// Counts what engines computed for the key that is written like this; one that is not valid any more is not found.
    pub(in crate::server) fn count_compute(&self, owner: Option<&str>, compute: Compute) {
        let accounts = self.keys.lock().expect("no panic while locked");
        let of = |id: &Option<KeyId>| id.map(|id| id.to_string()).as_deref() == owner;
        let usage = accounts.iter().find(|(id, _)| of(id)).map_or(&self.gone, |(_, account)| &account.usage);
        usage.add_compute(compute);
    }

    /// All accounts, by name.
    fn accounts(&self) -> Vec<(Option<KeyId>, Arc<Account>)> {
        let accounts = self.keys.lock().expect("no panic while locked");
        let mut accounts: Vec<_> = accounts.iter().map(|(id, account)| (*id, account.clone())).collect();
        accounts.sort_by(|one, other| one.1.name.cmp(&other.1.name));
        accounts
    }
}

impl Clock {
    fn now(self) -> Now {
        Now(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX / 2))
    }
}

impl Buckets {
    fn new(rates: &Rates) -> Self {
        Self(std::array::from_fn(|at| Bucket::new(rates[at])))
    }

    fn set(&self, rates: &Rates) {
        self.0.iter().zip(rates).for_each(|(bucket, rate)| bucket.set(*rate));
    }

    fn of(&self, resource: Resource) -> &Bucket {
        &self.0[resource as usize]
    }

    fn is_full(&self, now: Now) -> bool {
        self.0.iter().all(|bucket| bucket.is_full(now))
    }

    /// Of the bucket that is used most.
    fn used(&self, now: Now) -> u64 {
        self.0.iter().map(|bucket| bucket.used(now)).max().unwrap_or(0)
    }

    /// In units of the limit.
    fn level(&self, resource: Resource, now: Now) -> Option<Level> {
        let level = self.of(resource).level(now)?;
        let scale = resource.scale();
        Some(Level { limit: level.limit / scale, remaining: level.remaining / scale, ..level })
    }
}

impl Account {
    fn new(name: String, rates: Rates) -> Self {
        let (usage, unreported, is_named) = Default::default();
        Self { name, buckets: Buckets::new(&rates), usage, unreported, is_named }
    }

    /// The same usage under another name; the buckets begin full.
    fn renamed(&self, name: String) -> Self {
        let account = Self::new(name, Rates::default());
        account.usage.add_all(self.usage.totals());
        Self { is_named: self.is_named.clone(), ..account }
    }
}

impl Consumer {
    /// The name of the key.
    pub(in crate::server) fn name(&self) -> &str {
        &self.key.name
    }

    /// Counts usage.
    pub(in crate::server) fn count(&self, count: Count, n: u64) {
        self.key.usage.add(count, n);
    }

    /// Counts what engines computed.
    pub(in crate::server) fn count_compute(&self, compute: Compute) {
        self.key.usage.add_compute(compute);
    }

    /// Whether there is at least one unit, of the key and of the address.
    ///
    /// # Errors
    /// The limit that is used up. It is counted as a refusal.
    pub(in crate::server) fn check(&self, resource: Resource) -> Result<(), UsedUp> {
        let now = self.clock.now();
        let used_up = |of| move |wait| UsedUp { resource, of, wait };
        let key = self.key.buckets.of(resource).check(now).map_err(used_up(Whose::Key));
        let address = self
            .address
            .as_ref()
            .map_or(Ok(()), |address| address.of(resource).check(now).map_err(used_up(Whose::Address)));
        let checked = key.and(address);
        if checked.is_err() {
            self.count(Count::Refused, 1);
        }
        checked
    }

    /// As [`Self::check`], and takes `amount`, which may be more than is left. Requests that come at the very same time may take one unit more for each
    /// processor.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(in crate::server) fn take(&self, resource: Resource, amount: u64) -> Result<(), UsedUp> {
        self.check(resource)?;
        self.spend(resource, amount);
        Ok(())
    }

    /// Takes `amount`, if need be as a debt; the result is the time until that is paid back.
    pub(in crate::server) fn spend(&self, resource: Resource, amount: u64) -> Duration {
        let now = self.clock.now();
        self.key.unreported[resource as usize].fetch_add(amount, Ordering::Relaxed);
        let key = self.key.buckets.of(resource).spend(now, amount);
        let address = self.address.as_ref().map_or(Duration::ZERO, |address| address.of(resource).spend(now, amount));
        key.max(address)
    }

    /// Gives back what was taken. What was reported to the other hubs meanwhile stays taken there.
    fn give_back(&self, resource: Resource, amount: u64) {
        self.key.buckets.of(resource).give_back(amount);
        if let Some(address) = &self.address {
            address.of(resource).give_back(amount);
        }
        let less = |unreported: u64| Some(unreported.saturating_sub(amount));
        let _ = self.key.unreported[resource as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The limit of which the smallest part is left, of the key's and the address's; `None` without one.
    pub(in crate::server) fn level(&self, resource: Resource) -> Option<Level> {
        let now = self.clock.now();
        let address = self.address.as_ref().and_then(|address| address.level(resource, now));
        tighter(self.key.buckets.level(resource, now), address)
    }
}

/// The limit of which less is left.
fn tighter(one: Option<Level>, other: Option<Level>) -> Option<Level> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.remaining < one.remaining { other } else { one }),
        (one, other) => one.or(other),
    }
}

impl UsedUp {
    /// The name of the setting.
    pub(in crate::server) fn setting(self) -> String {
        let prefix = match self.of {
            Whose::Session => "session_",
            Whose::Key => "",
            Whose::Address => "address_",
        };
        format!("limits.{prefix}{}", self.resource.setting())
    }

    /// For the client.
    pub(in crate::server) fn message(self) -> String {
        let whose = match self.of {
            Whose::Session => "This session",
            Whose::Key => "Your API key",
            Whose::Address => "Your address",
        };
        let again = go_duration::go_duration(self.wait);
        format!("{whose} has reached its rate limit ({}). Try again in {again}.", self.setting())
    }
}

#[cfg(test)]
mod tests;
