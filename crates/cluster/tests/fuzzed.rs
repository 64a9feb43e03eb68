//! Ten thousand messages from a stranger, made from the seeds of the fuzz target: nothing panics and nothing grows. `make fuzz`
//! searches further.

use antiphon_cluster::testing::feed;

/// Messages in all; a run of the target takes a few of them.
const N_MESSAGES: usize = 10_000;

/// The next number of a sequence (Knuth's generator for 64 bits).
fn next(random: &mut u64) -> usize {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize
}

#[test]
fn ten_thousand_messages_from_a_stranger_do_no_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/cluster");
    let seeds: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .expect("the seeds")
        .map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a seed"))
        .collect();
    assert!(seeds.len() >= 4);
    let mut random = 1;
    let mut n_messages = 0;
    while n_messages < N_MESSAGES {
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..1 + next(&mut random) % 8 {
            bytes.extend(&seeds[next(&mut random) % seeds.len()]);
            n_messages += 4;
        }
        for _ in 0..next(&mut random) % 12 {
            let at = next(&mut random) % bytes.len();
            match next(&mut random) % 3 {
                0 => bytes[at] = next(&mut random) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, next(&mut random) as u8),
            }
        }
        feed(&bytes);
    }
}
