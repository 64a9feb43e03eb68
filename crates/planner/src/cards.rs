//! GPUs by name, and a profile as another one of them is estimated to serve it.

use super::PlanError;
use super::profile::{Profile, Service, Source, StageProfile};

/// A GPU, by its maker's data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Its name in the options and in profiles.
    pub name: &'static str,
    /// Memory, in GB of 10^9 bytes.
    pub memory_gb: f64,
    /// Bandwidth of its memory, in GB/s.
    pub bandwidth_gb_s: f64,
    /// Dense FP16 products with sums in FP32, in TFLOPS. Shown only: nothing is scaled by it.
    pub fp16_tflops: f64,
}

/// The cards that are known, by ascending bandwidth.
///
/// Sources: NVIDIA's data sheets of the L4, A10G, L40S, A100 (40 GB by PCIe; 80 GB as SXM), H100 (SXM) and H200 (SXM), and its
/// white papers of the architectures Ampere GA102, Ada and Blackwell for the GeForce RTX. Where a data sheet names the rate
/// with sparsity, half of it stands here.
pub const CARDS: [Card; 10] = [
    card("L4", 24.0, 300.0, 121.0),
    card("A10G", 24.0, 600.0, 70.0),
    card("L40S", 48.0, 864.0, 362.0),
    card("RTX3090", 24.0, 936.0, 71.0),
    card("RTX4090", 24.0, 1_008.0, 165.0),
    card("A100-40", 40.0, 1_555.0, 312.0),
    card("RTX5090", 32.0, 1_792.0, 209.0),
    card("A100-80", 80.0, 2_039.0, 312.0),
    card("H100", 80.0, 3_350.0, 989.0),
    card("H200", 141.0, 4_800.0, 989.0),
];

const fn card(name: &'static str, memory_gb: f64, bandwidth_gb_s: f64, fp16_tflops: f64) -> Card {
    Card { name, memory_gb, bandwidth_gb_s, fp16_tflops }
}

impl Card {
    /// The card of this name, in any case.
    ///
    /// # Errors
    /// It is not known; the text lists those that are.
    pub fn named(name: &str) -> Result<Self, PlanError> {
        let known = CARDS.into_iter().find(|card| card.name.eq_ignore_ascii_case(name));
        known.ok_or_else(|| {
            let lines: Vec<_> = CARDS.iter().map(Self::line).collect();
            PlanError::Card(format!("{name:?} is not known; known are\n{}", lines.join("\n")))
        })
    }

    /// Its figures in one line.
    fn line(&self) -> String {
        let Self { name, memory_gb, bandwidth_gb_s, fp16_tflops } = self;
        format!("  {name:<8} {memory_gb:>4.0} GB, {bandwidth_gb_s:>5.0} GB/s, {fp16_tflops:>4.0} TFLOPS in FP16")
    }
}

/// The profile on another card: an estimate. The times of each stage on accelerators grow as the bandwidth of the memory
/// shrinks, since a step of a language model reads all its weights. It is too high where starting kernels or the vocoder's
/// arithmetic takes the time. The sources of these figures then say so.
///
/// # Errors
/// The profile names no card, no stage of it runs on one, or a stage's instances do not fit into the card's memory.
pub fn on_card(mut profile: Profile, card: &Card) -> Result<Profile, PlanError> {
    let from = profile.card.as_deref().ok_or_else(|| {
        PlanError::Card(format!(
            "the profile {:?} does not say of which card its times are: add \"card\": \"NAME\" to it",
            profile.name
        ))
    })?;
    let from = Card::named(from)?;
    let factor = from.bandwidth_gb_s / card.bandwidth_gb_s;
    let estimate = format!(
        "estimated: {factor:.2} times those of the {} by the bandwidth of its memory, {:.0} against {:.0} GB/s; there",
        from.name, card.bandwidth_gb_s, from.bandwidth_gb_s
    );
    let stages = [("stt", &mut profile.stt), ("llm", &mut profile.llm), ("tts", &mut profile.tts)];
    let mut on_accelerators = 0;
    for (name, stage) in stages {
        let Some(needs) = stage.needs.as_ref().filter(|needs| needs.accelerators > 0.0) else { continue };
        let shared_by = (1.0 / needs.accelerators).floor().max(1.0);
        let taken_gb = needs.card_gb * shared_by;
        if taken_gb > card.memory_gb * needs.accelerators.max(1.0) {
            let engine = &stage.engine;
            return Err(PlanError::Card(format!(
                "{engine} takes {taken_gb:.1} GB of a card's memory, and the {} has {:.0} GB",
                card.name, card.memory_gb
            )));
        }
        on_accelerators += 1;
        slow_down(stage, factor);
        let path = format!("{name}.service");
        let known = profile.sources.get(&path).map_or("no source is given", |source| source.from.as_str());
        let source = Source { measured: false, from: format!("{estimate}: {known}") };
        profile.sources.insert(path, source);
    }
    if on_accelerators == 0 {
        return Err(PlanError::Card(format!("no stage of the profile {:?} runs on one", profile.name)));
    }
    profile.name = format!("{} on {}", profile.name, card.name);
    profile.card = Some(card.name.to_owned());
    Ok(profile)
}

/// Multiplies the times of a stage.
fn slow_down(stage: &mut StageProfile, factor: f64) {
    match &mut stage.service {
        Service::External { .. } => {}
        Service::Slots { points, .. } => {
            for point in points {
                point.first_ms *= factor;
                point.hold_ms *= factor;
            }
        }
        Service::Runs { points, .. } => {
            for point in points {
                point.run_ms *= factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_ms(stage: &StageProfile) -> f64 {
        match &stage.service {
            Service::Slots { points, .. } => points[0].first_ms,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_profile_is_scaled_by_bandwidth_and_says_so() {
        let gpu = || Profile::built_in("gpu").unwrap();
        let slow = on_card(gpu(), &Card::named("a10g").unwrap()).unwrap();
        assert_eq!(slow.name, "gpu on A10G");
        let factor = 1_555.0 / 600.0;
        assert!((first_ms(&slow.llm) - 90.0 * factor).abs() < 1e-9);
        let assumed = slow.assumptions();
        let tts = assumed.iter().find(|(path, _)| path == "tts.service").unwrap();
        assert!(tts.1.starts_with("estimated: 2.59 times those of the A100-40"), "{}", tts.1);
        let same = on_card(gpu(), &Card::named("A100-40").unwrap()).unwrap();
        assert_eq!(first_ms(&same.tts), first_ms(&gpu().tts));
        let back = on_card(slow, &Card::named("A100-40").unwrap()).unwrap();
        assert!((first_ms(&back.tts) - first_ms(&gpu().tts)).abs() < 1e-9);
    }

    #[test]
    fn what_no_card_can_be_estimated_for_is_named() {
        let a10g = Card::named("A10G").unwrap();
        let says = |profile: Profile, text: &str| {
            let error = on_card(profile, &a10g).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        let unknown = Card::named("help").unwrap_err().to_string();
        assert!(
            unknown.contains("\"help\" is not known") && unknown.contains("H200      141 GB,  4800 GB/s"),
            "{unknown}"
        );
        let mut large = Profile::built_in("gpu").unwrap();
        large.llm.needs.as_mut().unwrap().card_gb = 40.0;
        says(large, "takes 40.0 GB of a card's memory, and the A10G has 24 GB");
        let mut shared = Profile::built_in("gpu").unwrap();
        let needs = shared.tts.needs.as_mut().unwrap();
        needs.card_gb = 9.0;
        needs.accelerators = 1.0 / 3.0;
        says(shared, "takes 27.0 GB of a card's memory");
        let mut nameless = Profile::built_in("gpu").unwrap();
        nameless.card = None;
        says(nameless, "add \"card\": \"NAME\" to it");
        let mut on_processors = Profile::built_in("processor").unwrap();
        on_processors.card = Some("H200".to_owned());
        says(on_processors, "no stage of the profile \"processor\" runs on one");
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(CARDS.windows(2).all(|pair| pair[0].bandwidth_gb_s < pair[1].bandwidth_gb_s));
    }
}
