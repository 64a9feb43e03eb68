//! The limits of one session, as the session crate asks for them.

use super::bucket::Level;
use super::{Buckets, Consumer, Count, Resource, UsedUp, Whose, tighter};
use antiphon_dialog::ResponseUsage;
use antiphon_protocol::RateLimit;
use antiphon_session::{LimitReached, SessionLimits};
use antiphon_types::{Compute, Requester, SampleRate, Samples};
use std::time::Duration;

/// See the module.
pub(in crate::server) struct SessionMeter {
    consumer: Consumer,
    own: Buckets,
    /// Of a client without a key.
    client: Option<Requester>,
    on_refused: Box<dyn Fn(UsedUp) + Send + Sync>,
}

impl SessionMeter {
    pub(super) fn new(consumer: Consumer, own: Buckets, on_refused: Box<dyn Fn(UsedUp) + Send + Sync>) -> Self {
        Self { consumer, own, client: None, on_refused }
    }

    /// The client of the session, which has no key.
    pub(in crate::server) fn of_client(self, client: Requester) -> Self {
        Self { client: Some(client), ..self }
    }

    fn check(&self) -> Result<(), UsedUp> {
        let now = self.consumer.clock.now();
        for resource in [Resource::Responses, Resource::Tokens] {
            let own = self.own.of(resource).check(now);
            if let Err(wait) = own {
                self.consumer.count(Count::Refused, 1);
                return Err(UsedUp { resource, of: Whose::Session, wait });
            }
            self.consumer.check(resource)?;
        }
        Ok(())
    }

    /// Of the session's, the key's and the address's limit the one of which the smallest part is left.
    pub(in crate::server) fn level(&self, resource: Resource) -> Option<Level> {
        let own = self.own.level(resource, self.consumer.clock.now());
        tighter(own, self.consumer.level(resource))
    }
}

impl SessionLimits for SessionMeter {
    fn client(&self) -> Option<Requester> {
        self.client
    }

    fn audio_received(&self, audio: Samples) -> Duration {
        let ms = audio.as_ms(SampleRate::HZ_16000);
        self.consumer.count(Count::AudioInMs, ms);
        let own = self.own.of(Resource::Audio).spend(self.consumer.clock.now(), ms);
        own.max(self.consumer.spend(Resource::Audio, ms))
    }

    fn may_respond(&self) -> Result<(), LimitReached> {
        self.check().map_err(|used_up| {
            (self.on_refused)(used_up);
            LimitReached(used_up.message())
        })
    }

    fn response_begun(&self) {
        self.own.of(Resource::Responses).spend(self.consumer.clock.now(), 1);
        self.consumer.spend(Resource::Responses, 1);
        self.consumer.count(Count::Responses, 1);
    }

    fn response_done(&self, usage: &ResponseUsage) {
        let read = usage.text.input_tokens;
        let written = usage.text.output_tokens;
        self.own.of(Resource::Tokens).spend(self.consumer.clock.now(), read + written);
        self.consumer.spend(Resource::Tokens, read + written);
        self.consumer.count(Count::TokensIn, read);
        self.consumer.count(Count::TokensOut, written);
        self.consumer.count(Count::AudioOutMs, usage.output_audio_ms);
    }

    fn speculation_dropped(&self, input_tokens: u64) {
        self.own.of(Resource::Tokens).spend(self.consumer.clock.now(), input_tokens);
        self.consumer.spend(Resource::Tokens, input_tokens);
        self.consumer.count(Count::TokensIn, input_tokens);
    }

    fn turn(&self) {
        self.consumer.count(Count::Turns, 1);
    }

    fn computed(&self, compute: Compute) {
        self.consumer.count_compute(compute);
    }

    fn state(&self) -> Vec<RateLimit> {
        let named = [("requests", Resource::Responses), ("tokens", Resource::Tokens)];
        let limits = named.into_iter().filter_map(|(name, resource)| {
            let Level { limit, remaining, reset } = self.level(resource)?;
            Some(RateLimit { name, limit, remaining, reset_seconds: reset.as_secs_f64() })
        });
        limits.collect()
    }
}
