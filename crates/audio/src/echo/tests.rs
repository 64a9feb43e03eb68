//! The echo guard on synthetic speech: delays, codecs, rooms, double talk.

use super::*;

/// A substitute for speech that is as hard to align: noise in syllables of 60 to 300 ms with pauses, through a moving
/// resonance.
fn speechlike(seed: u32, n: usize) -> Vec<i16> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let mut out = Vec::with_capacity(n);
    let mut past = [0.0f32; 2];
    while out.len() < n {
        let length = 2_900.0 + 1_900.0 * random();
        let level = 1_200.0 + 1_000.0 * random();
        let angle = 0.2 + 0.15 * random();
        let voiced = random() > -0.5;
        for i in 0..length as usize {
            let envelope = (std::f32::consts::PI * i as f32 / length).sin();
            let drive = if voiced { level * envelope * random() } else { 0.0 };
            let now = drive + 1.88 * angle.cos() * past[0] - 0.8836 * past[1];
            past = [now, past[0]];
            out.push(now as i16);
        }
    }
    out.truncate(n);
    out
}

/// `reply` at -12 dB, `delay` samples late, over noise 40 dB below it, plus `user` from `user_at` on.
fn microphone(reply: &[i16], delay: usize, user_at: usize, user: &[i16]) -> Vec<i16> {
    let mut mic = vec![0i16; reply.len() + delay + 4_000];
    let noise = speechlike(99, mic.len());
    for (i, sample) in mic.iter_mut().enumerate() {
        let echo = i.checked_sub(delay).and_then(|i| reply.get(i)).map_or(0, |&x| x / 4);
        let own = i.checked_sub(user_at).and_then(|i| user.get(i)).copied().unwrap_or(0);
        *sample = echo.saturating_add(own).saturating_add(noise[i] / 100);
    }
    mic
}

fn residual_of(guard: &mut EchoGuard, mic: &[i16]) -> (Vec<i16>, Vec<EchoVerdict>) {
    let mut out = vec![0; mic.len()];
    let mut verdicts = Vec::new();
    for (window, left) in mic.as_chunks::<WINDOW>().0.iter().zip(out.as_chunks_mut::<WINDOW>().0) {
        verdicts.push(guard.residual(window, left));
    }
    (out, verdicts)
}

fn energy(samples: &[i16]) -> f64 {
    samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().max(1.0)
}

fn db(from: f64, to: f64) -> f64 {
    10.0 * (from / to).log10()
}

#[test]
fn the_reply_is_gone_from_the_first_loud_window_at_any_delay() {
    let reply = speechlike(1, 48_000);
    for delay_ms in [0, 5, 70, 250, 600, 1_150] {
        let delay = delay_ms * 16;
        let mic = microphone(&reply, delay, 0, &[]);
        let mut guard = EchoGuard::new();
        guard.played(Samples::ZERO, &reply);
        let (left, verdicts) = residual_of(&mut guard, &mic);
        assert_eq!(verdicts.last().and_then(|verdict| verdict.lag), Some(delay as i32), "{delay_ms} ms");
        let down = db(energy(&mic), energy(&left));
        assert!(down >= 15.0, "{delay_ms} ms: {down:.1} dB");
        // The first 160 ms are checked separately too: the guard needs no learning phase.
        let loud = (delay + mic[delay..].iter().position(|x| x.unsigned_abs() > 300).unwrap()) / WINDOW * WINDOW;
        let at_first = db(energy(&mic[loud..loud + 2_560]), energy(&left[loud..loud + 2_560]));
        assert!(at_first >= 12.0, "{delay_ms} ms: {at_first:.1} dB at first");
    }
}

#[test]
fn the_user_is_left_in_while_the_reply_sounds() {
    let reply = speechlike(2, 64_000);
    let user = speechlike(3, 24_000);
    let at = 24_000;
    let mic = microphone(&reply, 3_000, at, &user);
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &reply);
    let (left, _) = residual_of(&mut guard, &mic);
    let there = &left[at..at + user.len()];
    let wrong: f64 = there.iter().zip(&user).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    assert!(
        db(energy(&user), wrong) > 8.0,
        "the user is {:.1} dB above what was done to them",
        db(energy(&user), wrong)
    );
    let level = db(energy(there), energy(&user));
    assert!(level.abs() < 1.5, "the user's level changed by {level:.1} dB");
}

#[test]
fn a_user_without_echo_is_not_touched_by_a_reply() {
    let reply = speechlike(4, 64_000);
    let user = speechlike(5, 56_000);
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &reply);
    let (left, _) = residual_of(&mut guard, &user);
    let lost = db(energy(&user), energy(&left));
    assert!(lost < 1.0, "{lost:.1} dB lost");
}

#[test]
fn an_echo_that_begins_after_minutes_without_one_is_gone_from_its_first_loud_window() {
    let mut guard = EchoGuard::new();
    for round in 0..12u64 {
        let reply = speechlike(2 * round as u32 + 20, 64_000);
        let user = speechlike(2 * round as u32 + 21, 64_000);
        guard.played(guard.position(), &reply);
        residual_of(&mut guard, &user);
    }
    assert!(guard.n_vain >= VAIN && guard.lag.is_none(), "{} searches were vain", guard.n_vain);
    // The headphones are unplugged.
    guard.skip(Samples(32_000 + 16 * 5_000));
    let reply = speechlike(60, 48_000);
    let delay = 1_600;
    let mic = microphone(&reply, delay, 0, &[]);
    guard.played(guard.position(), &reply);
    let (left, verdicts) = residual_of(&mut guard, &mic);
    assert_eq!(verdicts.last().and_then(|verdict| verdict.lag), Some(delay as i32));
    let down = db(energy(&mic), energy(&left));
    assert!(down >= 15.0, "{down:.1} dB");
    assert_eq!(guard.n_vain, 0);
}

#[test]
fn a_delay_it_was_not_told_of_is_found_again() {
    let reply = speechlike(6, 96_000);
    let mut mic = microphone(&reply, 1_600, 0, &[]);
    // Playback pauses for 300 ms in the middle.
    mic.splice(48_000..48_000, [0; 4_800]);
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &reply);
    let (left, verdicts) = residual_of(&mut guard, &mic);
    assert_eq!(verdicts.last().and_then(|verdict| verdict.lag), Some(6_400));
    let down = db(energy(&mic[52_800..]), energy(&left[52_800..]));
    assert!(down > 12.0, "{down:.1} dB");
}

#[test]
fn a_delay_it_was_told_of_keeps_the_lag() {
    let reply = speechlike(7, 96_000);
    let mut mic = microphone(&reply, 1_600, 0, &[]);
    mic.splice(48_000..48_000, [0; 19_200]);
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &reply);
    let (left_before, _) = residual_of(&mut guard, &mic[..48_128]);
    guard.delayed(Samples(48_000 - 1_600), Samples(19_200));
    let (left_after, verdicts) = residual_of(&mut guard, &mic[48_128..]);
    assert_eq!(verdicts.last().and_then(|verdict| verdict.lag), Some(1_600));
    let down = db(energy(&mic), energy(&left_before) + energy(&left_after));
    assert!(down > 15.0, "{down:.1} dB");
}

#[test]
fn pieces_sent_as_they_are_played_do_as_well_as_the_whole() {
    let reply = speechlike(8, 48_000);
    let mic = microphone(&reply, 2_000, 0, &[]);
    let mut guard = EchoGuard::new();
    let mut left = vec![0; mic.len()];
    let mut pieces = reply.chunks(320).enumerate();
    for (i, (window, left)) in mic.as_chunks::<WINDOW>().0.iter().zip(left.as_chunks_mut::<WINDOW>().0).enumerate() {
        for (n, piece) in pieces.by_ref() {
            guard.played(Samples(n as u64 * 320), piece);
            // 300 ms ahead, as the pacer sends it.
            if n * 320 > i * WINDOW + 4_800 {
                break;
            }
        }
        guard.residual(window, left);
    }
    let down = db(energy(&mic), energy(&left));
    assert!(down >= 15.0, "{down:.1} dB");
}

#[test]
fn without_a_reply_it_copies_and_holds_nothing() {
    let user = speechlike(9, 16_000);
    let mut guard = EchoGuard::new();
    let (left, verdicts) = residual_of(&mut guard, &user);
    assert_eq!(left[..user.len() / WINDOW * WINDOW], user[..user.len() / WINDOW * WINDOW]);
    assert!(verdicts.iter().all(|verdict| *verdict == EchoVerdict::default()));
    assert_eq!(guard.memory(), 0);
}

#[test]
fn memory_is_bounded_and_given_back_and_the_lag_is_remembered() {
    let reply = speechlike(10, 32_000);
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &reply);
    residual_of(&mut guard, &microphone(&reply, 1_000, 0, &[]));
    let most = guard.memory();
    assert!(most > 0 && most < 500_000, "{most} bytes");
    let (_, verdicts) = residual_of(&mut guard, &vec![0; 32_000 + FREE_AFTER as usize]);
    assert_eq!((guard.memory(), guard.lag), (0, Some(1_000)));
    assert_eq!(verdicts.last(), Some(&EchoVerdict::default()));
}

#[test]
fn what_was_stopped_is_not_subtracted() {
    let reply = speechlike(11, 64_000);
    let mut heard = reply.clone();
    heard[16_000..].fill(0);
    let mic = microphone(&heard, 500, 24_000, &reply[24_000 - 500..56_000]);
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &reply);
    guard.stopped(Samples(16_000));
    let (left, _) = residual_of(&mut guard, &mic);
    // From there on another speaker says the same words.
    let n = left.len() / WINDOW * WINDOW;
    let lost = db(energy(&mic[40_000..n]), energy(&left[40_000..n]));
    assert!(lost < 0.1, "{lost:.1} dB");
}

#[test]
fn windows_of_other_lengths_pass_through() {
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &[1_000; 4_000]);
    let mut out = [0; 100];
    guard.residual(&[7; 100], &mut out);
    assert_eq!((out, guard.position()), ([7; 100], Samples(100)));
}

#[test]
fn a_microphone_that_hears_no_reply_is_searched_less_until_it_hears_one() {
    let reply = speechlike(12, 384_000);
    let mut user = speechlike(13, 384_000);
    // A voice resembles another one now and then: 64 ms of the reply, each time at another lag, then a pause.
    for (n, at) in (20_000..380_000).step_by(8_000).enumerate() {
        let from = at - 1_000 - 317 * n;
        user[at..at + 1_024].copy_from_slice(&reply[from..from + 1_024]);
        user[at + 1_024..at + 3_000].fill(0);
    }
    let mut guard = EchoGuard::new();
    guard.played(Samples::ZERO, &reply);
    for window in user.as_chunks::<WINDOW>().0 {
        guard.residual(window, &mut [0; WINDOW]);
    }
    assert!(guard.n_vain >= VAIN, "{} searches in vain", guard.n_vain);
    let at = guard.position();
    guard.played(at, &reply[..48_000]);
    let (_, verdicts) = residual_of(&mut guard, &microphone(&reply[..48_000], 1_000, 0, &[]));
    assert!(verdicts[60..].iter().any(|verdict| verdict.explained > 0.9));
    assert_eq!((guard.n_vain, guard.lag), (0, Some(1_000)));
}
