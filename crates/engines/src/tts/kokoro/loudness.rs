//! How loud the published voices speak: the quietest and the loudest are 6 dB apart.
//!
//! In LUFS, the mean of two sentences by the int8 export of v1.0, measured by ITU-R BS.1770. A run of this model takes a second on
//! a slow machine, so that only voices of one's own are measured when they first speak.

const VOICES: [(&str, f32); 21] = [
    ("af_heart", -22.5),
    ("af_alloy", -20.6),
    ("af_aoede", -17.6),
    ("af_bella", -21.9),
    ("af_jessica", -21.6),
    ("af_kore", -18.4),
    ("af_nicole", -21.6),
    ("af_nova", -25.8),
    ("af_river", -20.8),
    ("af_sarah", -20.6),
    ("af_sky", -23.2),
    ("am_adam", -18.3),
    ("am_echo", -21.3),
    ("am_eric", -20.9),
    ("am_fenrir", -18.9),
    ("am_liam", -21.1),
    ("am_michael", -23.2),
    ("am_onyx", -21.4),
    ("am_puck", -18.0),
    ("am_santa", -21.9),
    ("bf_alice", -20.1),
];

/// That of a mixture: the mean of its voices by their shares. `None`: one of them is not known.
pub(super) fn lufs(mix: &[(String, f32)]) -> Option<f32> {
    let of = |name: &str| VOICES.iter().find(|(voice, _)| *voice == name).map(|(_, lufs)| lufs);
    mix.iter().map(|(name, share)| Some(share * of(name)?)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_has_the_mean_of_its_voices() {
        let mix = |voices: &[(&str, f32)]| {
            voices.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect::<Vec<_>>()
        };
        let heart = lufs(&mix(&[("af_heart", 1.0)])).expect("it is known");
        let sky = lufs(&mix(&[("af_sky", 1.0)])).expect("it is known");
        let both = lufs(&mix(&[("af_heart", 0.25), ("af_sky", 0.75)])).expect("they are known");
        assert!((both - (0.25 * heart + 0.75 * sky)).abs() < 1e-4);
        assert_eq!(lufs(&mix(&[("af_heart", 0.5), ("mine", 0.5)])), None);
    }
}
