//! The simulation of sessions and of a day's traffic, in a short form; the long forms are the program `antiphon-simulate`.

use antiphon_simulation::{Day, Seeds, run, simulate, simulate_day};
use antiphon_types::BrownoutLevel;

#[test]
fn no_world_breaks_an_invariant() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let simulated = run(Seeds { from: 0, n: 100, threads }, &|_| {});
    let failed: Vec<_> = simulated.failed.iter().map(|world| (world.seed, &world.violations, &world.log)).collect();
    assert!(failed.is_empty(), "replay them with antiphon-simulate --seed SEED --verbose: {failed:#?}");
    assert_eq!((simulated.n_done, simulated.n_compared), (100, 2));
}

/// Speech that was reported behind later speech (922, 2714), a committed item behind one that was held back (10087), an echo whose
/// item was deleted twice (48378), and a response that waited for words for ever, because they were those of a backchannel (76161).
#[test]
fn worlds_that_broke_an_invariant_once_keep_it() {
    for seed in [922, 2_714, 10_087, 48_378, 76_161] {
        let world = simulate(seed, true);
        assert!(world.violations.is_empty(), "seed {seed}: {:?}", world.violations);
    }
}

#[test]
fn a_seed_repeats_its_log_byte_for_byte() {
    for seed in [3, 17, 4_711] {
        let one = simulate(seed, true);
        let other = simulate(seed, true);
        assert_eq!(one.log, other.log);
        assert_eq!(one.hash, other.hash);
        assert!(one.log.len() > 4, "{:?}", one.log);
    }
    assert_ne!(simulate(1, false).hash, simulate(2, false).hash);
}

#[test]
fn the_levels_climb_and_return_within_a_day_and_nothing_is_left() {
    let day = simulate_day(Day { hours: 0.3, peak: 12, seed: 1 }, &|_| {});
    assert_eq!((day.lost, day.left), (0, 0), "{day:?}");
    assert!(day.turns > 100 && day.refused > 0 && day.most_sessions <= 12, "{day:?}");
    assert_eq!((day.highest, day.last), (BrownoutLevel::NoSessions, BrownoutLevel::Normal), "{day:?}");
}
