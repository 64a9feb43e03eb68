//! The load monitor on virtual time: what raises the level, what lowers it, and who is admitted.

use super::*;
use antiphon_session::AnsweredTurn;
use antiphon_types::SessionId;

/// A hub of 100 sessions whose load is set by each test.
struct Hub {
    monitor: LoadMonitor,
    now: Duration,
    sample: Sample,
    /// The next session that has a turn, and what it waits for it.
    turn: Option<(usize, f64)>,
}

impl Hub {
    fn new(config: SloConfig) -> Self {
        let sample = Sample { sessions: 100, processor: Some(0.1), ..Sample::default() };
        Self { monitor: LoadMonitor::new(config, 1), now: Duration::ZERO, sample, turn: None }
    }

    /// Ten turns a second that wait so long, from now on.
    fn answers_after(&mut self, ms: f64) {
        self.turn = Some((0, ms));
    }

    fn runs(&mut self, time: Duration) -> BrownoutLevel {
        let end = self.now + time;
        while self.now < end {
            self.now += SAMPLE_EVERY;
            self.sample.answered.clear();
            if let Some((session, latency_ms)) = &mut self.turn {
                for _ in 0..3 {
                    *session = (*session + 1) % 40;
                    let session = SessionId::from(format!("sess_{session}"));
                    let turn =
                        AnsweredTurn { session, latency_ms: *latency_ms, stt_ms: Some(20.0), tts_ms: Some(50.0) };
                    self.sample.answered.push(turn);
                }
            }
            self.monitor.observe(Timestamp::new(self.now), &self.sample);
        }
        self.monitor.level()
    }

    fn admits(&mut self) -> Result<(), Overloaded> {
        self.monitor.admit(Timestamp::new(self.now))
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_processor_at_its_limit_climbs_all_levels_and_calm_descends_them() {
    let mut hub = Hub::new(SloConfig::default());
    assert_eq!(hub.runs(seconds(5)), BrownoutLevel::Normal);
    hub.sample.processor = Some(1.0);
    let mut seen = vec![BrownoutLevel::Normal];
    for _ in 0..60 {
        let level = hub.runs(SAMPLE_EVERY);
        if seen.last() != Some(&level) {
            seen.push(level);
        }
    }
    assert_eq!(seen, BrownoutLevel::ALL);
    assert!(hub.admits().is_err());
    hub.sample.processor = Some(0.2);
    for level in BrownoutLevel::ALL.into_iter().rev().skip(1) {
        let mut n = 0;
        while hub.runs(SAMPLE_EVERY) != level {
            n += 1;
            assert!(n < 40, "it stays at {:?}", hub.monitor.level());
        }
    }
    assert!(hub.admits().is_ok());
}

#[test]
fn a_busy_moment_changes_nothing() {
    let mut hub = Hub::new(SloConfig::default());
    for _ in 0..20 {
        hub.sample.processor = Some(1.0);
        hub.runs(Duration::from_millis(750));
        hub.sample.processor = Some(0.2);
        assert_eq!(hub.runs(seconds(2)), BrownoutLevel::Normal);
    }
}

#[test]
fn between_both_limits_the_level_stays() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.processor = Some(1.0);
    while hub.runs(SAMPLE_EVERY) != BrownoutLevel::ShortLookAhead {}
    hub.sample.processor = Some(0.8);
    assert_eq!(hub.runs(seconds(60)), BrownoutLevel::ShortLookAhead);
}

#[test]
fn turns_beyond_the_objective_raise_the_level() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(500.0);
    assert_eq!(hub.runs(seconds(10)), BrownoutLevel::Normal);
    hub.answers_after(900.0);
    assert!(hub.runs(seconds(10)) > BrownoutLevel::Normal);
    assert_eq!(hub.monitor.report().latency_ms, Some(900.0));
}

#[test]
fn an_objective_that_is_missed_without_load_refuses_no_session() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(2_500.0);
    assert_eq!(hub.runs(seconds(300)), BrownoutLevel::Normal);
    hub.answers_after(4_500.0);
    assert!(hub.runs(seconds(10)) > BrownoutLevel::Normal, "load made it slower still");
}

#[test]
fn one_session_cannot_make_the_hub_shed_load() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(500.0);
    for _ in 0..100 {
        let slow = AnsweredTurn { session: "slow".to_owned().into(), latency_ms: 60_000.0, stt_ms: None, tts_ms: None };
        hub.sample.answered = vec![slow; 50];
        let now = hub.now;
        hub.monitor.observe(Timestamp::new(now), &hub.sample);
        assert_eq!(hub.runs(SAMPLE_EVERY), BrownoutLevel::Normal);
    }
    let mut single = Hub::new(SloConfig::default());
    (single.sample.sessions, single.sample.processor) = (1, Some(1.0));
    assert_eq!(single.runs(seconds(60)), BrownoutLevel::Normal);
}

#[test]
fn long_queues_and_late_timers_raise_the_level() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.stt = QueueSample { waiting: 30, concurrency: 4 };
    assert!(hub.runs(seconds(3)) > BrownoutLevel::Normal);
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.timer_delay_ms = 100.0;
    assert!(hub.runs(seconds(4)) > BrownoutLevel::Normal);
}

#[test]
fn a_slow_engine_with_a_short_queue_is_no_overload() {
    let mut hub = Hub::new(SloConfig::default());
    for _ in 0..40 {
        hub.monitor.spoken_after(Duration::from_secs(2));
    }
    hub.sample.tts = QueueSample { waiting: 1, concurrency: 1 };
    assert_eq!(hub.runs(seconds(60)), BrownoutLevel::Normal);
    hub.sample.tts.waiting = 3;
    assert!(hub.runs(seconds(3)) > BrownoutLevel::Normal);
}

#[test]
fn what_uses_the_processor_beside_no_session_refuses_none() {
    let mut hub = Hub::new(SloConfig::default());
    (hub.sample.sessions, hub.sample.processor) = (0, Some(1.0));
    hub.runs(seconds(30));
    assert!(hub.admits().is_ok());
}

#[test]
fn the_wait_for_a_voice_is_estimated_from_its_queue_and_its_service() {
    let mut hub = Hub::new(SloConfig::default());
    for _ in 0..40 {
        hub.monitor.spoken_after(Duration::from_secs(2));
    }
    let wait = |waiting| hub.monitor.tts_wait(QueueSample { waiting, concurrency: 2 });
    assert_eq!(wait(0), Duration::ZERO);
    assert!((wait(20).as_secs_f64() - 20.0).abs() < 0.1, "{:?}", wait(20));
}

#[test]
fn a_burst_is_admitted_as_far_as_the_processor_suffices() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.processor = Some(0.5);
    hub.runs(seconds(30));
    let n = (0..1_000).take_while(|_| hub.admits().is_ok()).count();
    // 100 sessions use half of a core, so that 94 more may use what is left up to 0.97.
    assert!((85..=100).contains(&n), "{n}");
    (hub.sample.sessions, hub.sample.processor) = (194, Some(0.5));
    hub.runs(seconds(4));
    assert!(hub.admits().is_ok(), "they use less than was predicted");
}

#[test]
fn the_estimate_follows_how_fast_sessions_end() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.processor = Some(1.2);
    while hub.runs(SAMPLE_EVERY) != BrownoutLevel::NoSessions {}
    let unknown = hub.admits().expect_err("it is closed").retry_after;
    assert_eq!(unknown, Duration::from_secs(5));
    hub.sample.ended = 1;
    hub.runs(seconds(20));
    let estimate = hub.admits().expect_err("it is closed").retry_after;
    // A quarter of the sessions must end, and four end each second.
    assert!((5..=8).contains(&estimate.as_secs()), "{estimate:?}");
}

#[test]
fn without_brownout_everything_is_admitted_and_still_measured() {
    let mut hub = Hub::new(SloConfig { brownout: false, ..SloConfig::default() });
    hub.sample.processor = Some(1.0);
    assert_eq!(hub.runs(seconds(60)), BrownoutLevel::Normal);
    assert!(hub.admits().is_ok());
    assert!(hub.monitor.report().pressure.processor > 1.0);
}
