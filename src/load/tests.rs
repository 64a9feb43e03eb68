//! The load monitor on virtual time: what raises the level, what lowers it, and who is admitted.

use super::*;
use antiphon_session::{AnsweredTurn, AwaitedTurn};
use antiphon_types::SessionId;

/// A hub of 100 sessions whose load is set by each test.
struct Hub {
    monitor: LoadMonitor,
    now: Duration,
    sample: Sample,
    /// The next session that has a turn, and what it waits for it.
    turn: Option<(usize, f64)>,
    /// How many sessions wait for a reply that never sounds, and since when.
    stalled: Option<(usize, Duration)>,
}

impl Hub {
    fn new(config: SloConfig) -> Self {
        let sample = Sample { sessions: 100, processor: Some(0.1), ..Sample::default() };
        Self { monitor: LoadMonitor::new(config, 1), now: Duration::ZERO, sample, turn: None, stalled: None }
    }

    /// Ten turns a second that wait this long, from now on.
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
            let (n, since) = self.stalled.unwrap_or((0, self.now));
            let waited_ms = (self.now - since).as_secs_f64() * 1e3;
            let waits = |n: usize| AwaitedTurn { session: format!("sess_{n}").into(), waited_ms };
            self.sample.awaited = (0..n).map(waits).collect();
            self.monitor.observe(Timestamp::new(self.now), &self.sample);
        }
        self.monitor.level()
    }

    fn admits(&mut self) -> Result<AdmittedSession, Overloaded> {
        self.monitor.admit(Timestamp::new(self.now), None)
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
fn replies_that_do_not_come_raise_the_level_and_keep_it_up() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(400.0);
    assert_eq!(hub.runs(seconds(10)), BrownoutLevel::Normal);
    hub.turn = None;
    hub.stalled = Some((40, hub.now));
    assert_eq!(hub.runs(seconds(60)), BrownoutLevel::NoSessions);
    assert!(hub.monitor.report().latency_ms.is_some_and(|ms| ms > 50_000.0), "{:?}", hub.monitor.report());
    hub.stalled = None;
    hub.answers_after(400.0);
    assert_eq!(hub.runs(seconds(60)), BrownoutLevel::Normal);
}

#[test]
fn what_waits_within_the_limit_is_neither_fast_nor_slow() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(700.0);
    hub.runs(seconds(10));
    hub.stalled = Some((40, hub.now));
    hub.runs(Duration::from_millis(500));
    assert_eq!(hub.monitor.report().latency_ms, Some(700.0));
}

#[test]
fn the_limit_does_not_follow_the_load() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(400.0);
    hub.runs(seconds(10));
    hub.sample.sessions = 300;
    hub.answers_after(1_600.0);
    hub.runs(seconds(1_200));
    let report = hub.monitor.report();
    assert_eq!((report.level, report.latency_limit_ms), (BrownoutLevel::NoSessions, Some(800.0)));
}

#[test]
fn an_engine_that_becomes_slower_without_more_sessions_is_followed() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(1_000.0);
    hub.runs(seconds(10));
    hub.answers_after(1_900.0);
    hub.runs(seconds(600));
    assert_eq!(hub.monitor.report().latency_limit_ms, Some(2_850.0));
    assert_eq!(hub.monitor.level(), BrownoutLevel::Normal);
}

#[test]
fn an_engine_that_becomes_slower_is_followed_once_half_of_the_sessions_are_gone() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.sessions = 9;
    hub.answers_after(350.0);
    hub.runs(seconds(10));
    hub.sample.sessions = 200;
    hub.answers_after(1_200.0);
    assert_eq!(hub.runs(seconds(120)), BrownoutLevel::NoSessions);
    hub.sample.sessions = 90;
    assert_eq!(hub.runs(seconds(900)), BrownoutLevel::Normal, "less load made it no faster");
    assert!(hub.admits().is_ok());
}

#[test]
fn other_engines_have_another_lowest_latency() {
    let mut hub = Hub::new(SloConfig::default());
    hub.answers_after(350.0);
    hub.runs(seconds(10));
    hub.sample.sessions = 150;
    hub.monitor.engines_changed();
    hub.answers_after(1_500.0);
    assert_eq!(hub.runs(seconds(60)), BrownoutLevel::Normal);
}

#[test]
fn a_start_under_load_takes_its_latency_for_no_calm() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.processor = Some(1.0);
    hub.answers_after(2_500.0);
    hub.runs(seconds(30));
    let report = hub.monitor.report();
    assert_eq!(report.latency_limit_ms, Some(800.0));
    assert!(report.pressure.latency > 3.0, "{report:?}");
}

#[test]
fn the_slowest_of_few_sessions_alone_is_no_overload() {
    let mut hub = Hub::new(SloConfig::default());
    let turn = |n: usize| AnsweredTurn {
        session: format!("sess_{n}").into(),
        latency_ms: if n == 0 { 60_000.0 } else { 400.0 },
        stt_ms: None,
        tts_ms: None,
    };
    for _ in 0..100 {
        hub.sample.answered = (0..8).map(turn).collect();
        hub.now += SAMPLE_EVERY;
        hub.monitor.observe(Timestamp::new(hub.now), &hub.sample);
    }
    assert_eq!((hub.monitor.level(), hub.monitor.report().latency_ms), (BrownoutLevel::Normal, Some(400.0)));
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
    single.sample.sessions = 1;
    single.sample.processor = Some(1.0);
    assert_eq!(single.runs(seconds(60)), BrownoutLevel::Normal);
}

#[test]
fn long_queues_and_late_timers_raise_the_level() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.stt = QueueSample { waiting: 30, concurrency: 4, ..QueueSample::default() };
    assert!(hub.runs(seconds(3)) > BrownoutLevel::Normal);
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.timer_delay_ms = 100.0;
    assert!(hub.runs(seconds(4)) > BrownoutLevel::Normal);
}

#[test]
fn decode_steps_that_take_as_long_as_their_sound_raise_the_level() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.decode = 0.3;
    assert_eq!(hub.runs(seconds(10)), BrownoutLevel::Normal);
    hub.sample.decode = 0.95;
    assert!(hub.runs(seconds(3)) > BrownoutLevel::Normal);
    let mut slow = Hub::new(SloConfig::default());
    slow.sample.decode = 1.5;
    assert_eq!(slow.runs(seconds(60)), BrownoutLevel::Normal, "without load, too");
    slow.sample.decode = 2.5;
    assert!(slow.runs(seconds(3)) > BrownoutLevel::Normal);
}

#[test]
fn a_slow_engine_with_a_short_queue_is_no_overload() {
    let mut hub = Hub::new(SloConfig::default());
    for _ in 0..40 {
        hub.monitor.spoken_after(Duration::from_secs(2));
    }
    hub.sample.tts = QueueSample { waiting: 1, concurrency: 1, ..QueueSample::default() };
    assert_eq!(hub.runs(seconds(60)), BrownoutLevel::Normal);
    hub.sample.tts.waiting = 3;
    assert!(hub.runs(seconds(3)) > BrownoutLevel::Normal);
}

#[test]
fn what_uses_the_processor_beside_no_session_refuses_none() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.sessions = 0;
    hub.sample.processor = Some(1.0);
    hub.runs(seconds(30));
    assert!(hub.admits().is_ok());
}

#[test]
fn the_wait_for_a_voice_is_estimated_from_its_queue_and_its_service() {
    let mut hub = Hub::new(SloConfig::default());
    for _ in 0..40 {
        hub.monitor.spoken_after(Duration::from_secs(2));
    }
    let wait = |waiting| hub.monitor.tts_wait(QueueSample { waiting, concurrency: 2, ..QueueSample::default() });
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
    hub.sample.sessions = 194;
    hub.sample.processor = Some(0.5);
    hub.runs(seconds(4));
    assert!(hub.admits().is_ok(), "they use less than was predicted");
}

#[test]
fn a_burst_is_admitted_as_far_as_the_engines_suffice() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.tts = QueueSample { in_service: 8, concurrency: 16, ..QueueSample::default() };
    hub.runs(seconds(60));
    let predicted = hub.monitor.report().headroom_sessions;
    let n = (0..1_000).take_while(|_| hub.admits().is_ok()).count();
    assert_eq!((predicted, hub.monitor.report().headroom_sessions), (n, 0));
    // 100 sessions use half of the voice, of which 95 % may be used while chunks wait 200 ms on average.
    assert!((80..=90).contains(&n), "{n}");
    hub.sample.sessions = 100 + n;
    hub.runs(seconds(2));
    assert!(hub.admits().is_err(), "they do not speak yet");
    hub.runs(seconds(10));
    assert!(hub.admits().is_ok(), "they use less than was predicted");
}

#[test]
fn beyond_what_is_predicted_few_are_admitted_while_all_is_calm() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.tts = QueueSample { in_service: 16, concurrency: 16, ..QueueSample::default() };
    hub.runs(seconds(120));
    assert_eq!(hub.monitor.report().headroom_sessions, 0);
    // One in twenty of 100, and the first.
    assert_eq!((0..100).take_while(|_| hub.admits().is_ok()).count(), 6);
    hub.runs(seconds(3));
    assert!(hub.admits().is_ok());
    hub.sample.tts.waiting = 30;
    hub.runs(SAMPLE_EVERY);
    assert!(hub.admits().is_err(), "chunks wait");
}

#[test]
fn sessions_that_have_ended_leave_room_at_once() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.tts = QueueSample { in_service: 14, concurrency: 16, ..QueueSample::default() };
    hub.runs(seconds(60));
    hub.sample.sessions = 0;
    hub.sample.tts.in_service = 0;
    hub.runs(SAMPLE_EVERY);
    let n = (0..1_000).take_while(|_| hub.admits().is_ok()).count();
    assert!((95..=110).contains(&n), "{n}");
}

#[test]
fn requests_that_no_session_makes_refuse_none() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.tts = QueueSample { in_service: 15, concurrency: 16, api: 14, ..QueueSample::default() };
    hub.runs(seconds(60));
    assert!((0..200).all(|_| hub.admits().is_ok()));
}

#[test]
fn what_few_sessions_use_of_an_engine_refuses_none() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.sessions = 2;
    hub.sample.processor = Some(0.1);
    hub.sample.stt = QueueSample { in_service: 1, concurrency: 2, ..QueueSample::default() };
    hub.runs(seconds(60));
    assert!((0..20).all(|_| hub.admits().is_ok()));
}

#[test]
fn an_engine_of_one_place_is_kept_further_from_its_limit_than_one_of_many() {
    let n_admitted = |in_service, concurrency| {
        let mut hub = Hub::new(SloConfig::default());
        hub.sample.stt = QueueSample { in_service, concurrency, ..QueueSample::default() };
        hub.runs(seconds(60));
        (0..1_000).take_while(|_| hub.admits().is_ok()).count()
    };
    let few = n_admitted(1, 2);
    let many = n_admitted(32, 64);
    assert!(few < many, "{few} of 2, {many} of 64");
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

#[test]
fn sessions_that_end_at_once_give_back_their_room() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.sessions = 40;
    hub.sample.tts = QueueSample { in_service: 8, concurrency: 16, ..QueueSample::default() };
    hub.runs(seconds(60));
    let headroom = hub.monitor.report().headroom_sessions;
    for n in 0..10_000 {
        let session = hub.admits().unwrap_or_else(|refused| panic!("connect {n}: {refused:?}"));
        hub.monitor.session_ended(session);
        assert_eq!(hub.monitor.report().headroom_sessions, headroom);
    }
    // Ended after a sample, or after two seconds, they leave no room twice.
    let held: Vec<_> = (0..10).map(|_| hub.admits().expect("room")).collect();
    hub.sample.sessions = 50;
    hub.runs(SAMPLE_EVERY);
    held.into_iter().for_each(|session| hub.monitor.session_ended(session));
    assert_eq!(hub.monitor.report().headroom_sessions, headroom);
}

#[test]
fn connects_that_end_do_not_close_the_hub_to_others() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.sessions = 40;
    hub.sample.tts = QueueSample { in_service: 16, concurrency: 16, ..QueueSample::default() };
    hub.runs(seconds(120));
    assert_eq!(hub.monitor.report().headroom_sessions, 0);
    for _ in 0..1_000 {
        let session = hub.admits().expect("few are admitted beyond what is predicted");
        hub.monitor.session_ended(session);
    }
}

#[test]
fn one_client_gets_half_of_what_the_hub_suffices_for() {
    let mut hub = Hub::new(SloConfig::default());
    hub.sample.sessions = 10;
    hub.sample.tts = QueueSample { in_service: 4, concurrency: 16, ..QueueSample::default() };
    hub.runs(seconds(60));
    let capacity = 10 + hub.monitor.report().headroom_sessions;
    let admits = |hub: &mut Hub, own: usize| hub.monitor.admit(Timestamp::new(hub.now), Some(own)).is_ok();
    let greedy = (1..1_000).take_while(|own| admits(&mut hub, *own)).count();
    assert_eq!(greedy, capacity.div_ceil(2));
    assert!(admits(&mut hub, 1), "another one");
    // Where there is no room at all, it takes nothing of what is left to others.
    hub.sample.tts.in_service = 16;
    hub.sample.sessions = 10 + greedy;
    hub.runs(seconds(120));
    assert!(!admits(&mut hub, greedy + 1) && admits(&mut hub, 1));
}
