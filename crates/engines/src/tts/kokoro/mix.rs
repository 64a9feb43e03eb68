//! Voices mixed: `af_sky:0.4+af_nicole:0.6`. Pure.

/// Voices in a mixture at most.
const MAX_VOICES: usize = 8;

/// What `text` names: voices and their shares, which add up to 1. A voice without a share counts 1 before they are made to.
/// The error says what is wrong, and what would be right.
pub(super) fn parse(text: &str, is_known: impl Fn(&str) -> bool) -> Result<Vec<(String, f32)>, String> {
    let example = "write it like af_sky:0.4+af_nicole:0.6";
    let mut mix: Vec<(String, f32)> = Vec::new();
    for part in text.split('+') {
        let (name, share) = match part.split_once(':') {
            Some((name, share)) => (name.trim(), share.trim().parse::<f32>().ok()),
            None => (part.trim(), Some(1.0)),
        };
        if !is_known(name) {
            return Err(format!("there is no voice {name:?} to mix; {example}"));
        }
        let share = share.filter(|share| share.is_finite() && (0.0..=1e6).contains(share));
        let share = share.ok_or_else(|| format!("the share of {name} is no number from 0 up; {example}"))?;
        match mix.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += share,
            None => mix.push((name.to_owned(), share)),
        }
    }
    if mix.len() > MAX_VOICES {
        return Err(format!("{} voices are too many to mix; {MAX_VOICES} at most", mix.len()));
    }
    let sum: f32 = mix.iter().map(|(_, share)| share).sum();
    if sum <= f32::EPSILON {
        return Err(format!("the shares of the voices add up to nothing; {example}"));
    }
    for (_, share) in &mut mix {
        *share /= sum;
    }
    mix.retain(|(_, share)| *share > 0.0);
    Ok(mix)
}

/// Whether `text` means to mix: no voice's name has these signs.
pub(super) fn is_mix(text: &str) -> bool {
    text.contains(['+', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> bool {
        ["sky", "nicole"].contains(&name)
    }

    #[test]
    fn shares_add_up_to_one() {
        let check = |text: &str, expect: &[(&str, f32)]| {
            let mix = parse(text, known).expect("right");
            assert_eq!(mix.len(), expect.len(), "{text}");
            for ((name, share), (expect_name, expect_share)) in mix.iter().zip(expect) {
                assert_eq!(name, expect_name);
                assert!((share - expect_share).abs() < 1e-6, "{text}: {share}");
            }
        };
        check("sky", &[("sky", 1.0)]);
        check("sky:0.4+nicole:0.6", &[("sky", 0.4), ("nicole", 0.6)]);
        check(" sky : 2 + nicole : 6 ", &[("sky", 0.25), ("nicole", 0.75)]);
        check("sky+nicole", &[("sky", 0.5), ("nicole", 0.5)]);
        check("sky:1+nicole:2+sky:1", &[("sky", 0.5), ("nicole", 0.5)]);
        check("sky:0+nicole:3", &[("nicole", 1.0)]);
        check("sky:0.1", &[("sky", 1.0)]);
    }

    #[test]
    fn a_bad_mixture_is_told() {
        let check = |text: &str, expect: &str| {
            let said = parse(text, known).expect_err("refused");
            assert!(said.contains(expect), "{text}: {said}");
        };
        check("sky:0.4+bob:0.6", "there is no voice \"bob\" to mix");
        check("sky:+nicole:1", "the share of sky is no number");
        check("sky:-1+nicole:1", "the share of sky");
        check("sky:NaN", "the share of sky");
        check("sky:inf+nicole", "the share of sky");
        check("sky:0+nicole:0", "add up to nothing");
        check("sky++nicole", "there is no voice \"\"");
        check("../sky:1", "there is no voice \"../sky\"");
        check(":", "there is no voice \"\"");
        let many: Vec<_> = (0..9).map(|i| i.to_string()).collect();
        assert!(parse(&many.join("+"), |_| true).expect_err("too many").contains("8 at most"));
    }
}
