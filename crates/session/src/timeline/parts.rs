//! The critical path of a turn: what the user waited for, one after the other, so that the parts add up to the whole.
//!
//! Reckoned backwards: the first audio left when the later of two things was there, the voice's first samples and the
//! certainty that the turn was over; the samples came of the chunk, the chunk of the model, and so on down to the moment
//! from which the recognizer could begin to finish, which is the end of the turn or, with a speculative response, an earlier pause. It
//! works on whole microseconds, so that nothing is lost by rounding.

use super::record::{Part, TurnStage};

/// Moments in microseconds from the end of speech. Any may be missing, and those of a speculative response may lie before
/// `end_confirmed`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) speculation_started: Option<i64>,
    pub(super) end_confirmed: Option<i64>,
    pub(super) stt_final: Option<i64>,
    pub(super) response_started: Option<i64>,
    pub(super) llm_first_token: Option<i64>,
    pub(super) first_chunk: Option<i64>,
    pub(super) tts_first_audio: Option<i64>,
    pub(super) first_audio_sent: Option<i64>,
    pub(super) first_audio_heard: Option<i64>,
    /// Microseconds of the time before `stt_final` that the network took; not negative.
    pub(super) stt_network: i64,
    /// The same of the time before `tts_first_audio`.
    pub(super) tts_network: i64,
}

impl Moments {
    /// From the end of speech to the first sound heard, or sent where nothing is known of hearing. What is sent before the
    /// end of speech (it cannot be) counts as sent at it, and nothing is heard before it is sent.
    pub(super) fn voice_to_voice(&self) -> Option<i64> {
        let sent = self.first_audio_sent?.max(0);
        Some(self.first_audio_heard.map_or(sent, |heard| heard.max(sent)))
    }

    /// The parts, contiguous from 0 to [`Moments::voice_to_voice`]; none while nothing was sent.
    pub(super) fn parts(&self) -> Vec<Part> {
        let Some(whole) = self.voice_to_voice() else { return Vec::new() };
        let mut parts = Vec::new();
        let mut at = 0;
        let mut part = |stage, to: i64| {
            // What was done early takes no time of its own.
            let to = to.min(whole);
            if to > at {
                parts.push(Part { stage, from_ms: ms(at), to_ms: ms(to) });
                at = to;
            }
        };
        for (stage, end) in self.path() {
            let Some(end) = end else { continue };
            let network = match stage {
                TurnStage::Stt => self.stt_network,
                TurnStage::Tts => self.tts_network,
                _ => 0,
            };
            part(stage, end.saturating_sub(network));
            part(TurnStage::Network, end);
        }
        part(TurnStage::Sending, self.first_audio_sent.map_or(0, |sent| sent.max(0)));
        part(TurnStage::Playback, whole);
        parts
    }

    /// The stages that the first audio sent had to wait for, each with its end.
    fn path(&self) -> Vec<(TurnStage, Option<i64>)> {
        let work = [
            (TurnStage::Stt, self.stt_final),
            (TurnStage::Queue, self.response_started),
            (TurnStage::Llm, self.llm_first_token),
            (TurnStage::Chunking, self.first_chunk),
            (TurnStage::Tts, self.tts_first_audio),
        ];
        let confirmed = (TurnStage::Endpointing, self.end_confirmed);
        let made = self.tts_first_audio.or(self.first_chunk).or(self.llm_first_token).or(self.response_started);
        let early = self.speculation_started.filter(|_| self.response_started < self.end_confirmed);
        match early {
            // The answer was ready and waited for the certainty.
            Some(_) if made <= self.end_confirmed => vec![confirmed],
            Some(start) => [(TurnStage::Endpointing, Some(start))].into_iter().chain(work).collect(),
            None => [confirmed].into_iter().chain(work).collect(),
        }
    }
}

/// Milliseconds of microseconds.
pub(super) fn ms(us: i64) -> f64 {
    us as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Moments in ms, in the order of the fields; a minus is a missing one.
    #[track_caller]
    fn check(moments: &str, expect: &str) {
        check_with(moments, (0, 0), expect);
    }

    /// The same, and what the network took of the recognizer's and the voice's time.
    #[track_caller]
    fn check_with(moments: &str, (stt_ms, tts_ms): (i64, i64), expect: &str) {
        let mut given = moments.split_whitespace().map(|word| word.parse::<i64>().ok().map(|ms| ms * 1000));
        let mut next = || given.next().expect("nine moments");
        let moments = Moments {
            speculation_started: next(),
            end_confirmed: next(),
            stt_final: next(),
            response_started: next(),
            llm_first_token: next(),
            first_chunk: next(),
            tts_first_audio: next(),
            first_audio_sent: next(),
            first_audio_heard: next(),
            stt_network: stt_ms * 1000,
            tts_network: tts_ms * 1000,
        };
        let line = |part: &Part| format!("{} {}", part.stage.as_str(), part.to_ms);
        assert_eq!(moments.parts().iter().map(line).collect::<Vec<_>>().join(", "), expect);
    }

    #[test]
    fn without_speculation_one_stage_follows_the_other() {
        check(
            "- 200 210 211 250 260 280 281 290",
            "endpointing 200, stt 210, queue 211, llm 250, chunking 260, tts 280, sending 281, playback 290",
        );
        check("- 200 - 200 250 250 280 281 -", "endpointing 200, llm 250, tts 280, sending 281");
        check("- - - 0 40 50 70 71 -", "llm 40, chunking 50, tts 70, sending 71");
    }

    #[test]
    fn a_speculative_response_that_is_ready_leaves_when_the_end_is_confirmed() {
        check("100 200 110 111 150 160 180 201 -", "endpointing 200, sending 201");
    }

    #[test]
    fn a_speculative_response_that_is_not_ready_is_waited_for_from_its_beginning() {
        check(
            "100 200 110 111 150 160 280 281 290",
            "endpointing 100, stt 110, queue 111, llm 150, chunking 160, tts 280, sending 281, playback 290",
        );
    }

    #[test]
    fn a_provisional_transcript_alone_does_not_spare_the_wait() {
        check(
            "100 200 130 205 250 260 280 281 -",
            "endpointing 200, queue 205, llm 250, chunking 260, tts 280, sending 281",
        );
    }

    #[test]
    fn the_network_is_a_part_behind_that_of_the_engine() {
        check_with(
            "- 200 210 211 250 260 280 281 290",
            (3, 5),
            "endpointing 200, stt 207, network 210, queue 211, llm 250, chunking 260, tts 275, network 280, sending 281, \
             playback 290",
        );
        check_with(
            "- 200 210 211 250 260 280 281 -",
            (10, 0),
            "endpointing 200, network 210, queue 211, llm 250, chunking 260, tts 280, sending 281",
        );
        check_with(
            "- 200 210 211 250 260 280 281 -",
            (99, 99),
            "endpointing 200, network 210, queue 211, llm 250, chunking 260, network 280, sending 281",
        );
    }

    #[test]
    fn a_hop_that_nobody_waited_for_is_no_part() {
        check_with("100 200 110 111 150 160 180 201 -", (3, 5), "endpointing 200, sending 201");
        check_with(
            "- 200 190 211 250 260 280 281 -",
            (3, 0),
            "endpointing 200, queue 211, llm 250, chunking 260, tts 280, sending 281",
        );
    }

    #[test]
    fn nothing_sent_has_no_parts_and_nothing_is_heard_before_it_is_sent() {
        check("- 200 210 211 250 260 280 - 290", "");
        check(
            "- 200 210 211 250 260 280 281 270",
            "endpointing 200, stt 210, queue 211, llm 250, chunking 260, tts 280, sending 281",
        );
    }

    fn moment() -> impl Strategy<Value = Option<i64>> {
        proptest::option::weighted(0.8, -1_000_000..3_000_000_i64)
    }

    proptest! {
        #[test]
        fn the_parts_add_up_whatever_the_order_of_the_marks(
            (speculation_started, end_confirmed, stt_final, response_started) in (moment(), moment(), moment(), moment()),
            (llm_first_token, first_chunk, tts_first_audio) in (moment(), moment(), moment()),
            (first_audio_sent, first_audio_heard) in (moment(), moment()),
            (stt_network, tts_network) in (0..1_000_000_i64, 0..1_000_000_i64),
        ) {
            let moments = Moments {
                speculation_started, end_confirmed, stt_final, response_started, llm_first_token, first_chunk,
                tts_first_audio, first_audio_sent, first_audio_heard, stt_network, tts_network,
            };
            let parts = moments.parts();
            let Some(whole) = moments.voice_to_voice() else {
                prop_assert!(parts.is_empty());
                return Ok(());
            };
            let mut at = 0.0;
            for part in &parts {
                prop_assert_eq!(part.from_ms, at, "no gap and no overlap: {:?}", parts);
                prop_assert!(part.to_ms > part.from_ms, "no part is empty: {:?}", parts);
                at = part.to_ms;
            }
            prop_assert_eq!(at, ms(whole), "they end where the wait ends: {:?}", parts);
            // Without the network the same stages take the same time, each up to the same moment.
            let local = Moments { stt_network: 0, tts_network: 0, ..moments };
            let mut parts = parts.iter().peekable();
            for whole in local.parts() {
                let network = match whole.stage {
                    TurnStage::Stt => stt_network,
                    TurnStage::Tts => tts_network,
                    _ => 0,
                };
                if let Some(part) = parts.next_if(|part| part.stage == whole.stage) {
                    prop_assert_eq!(part.from_ms, whole.from_ms);
                    if part.to_ms == whole.to_ms {
                        continue;
                    }
                }
                let hop = parts.next_if(|part| part.stage == TurnStage::Network);
                prop_assert!(hop.is_some_and(|hop| hop.to_ms == whole.to_ms), "{:?} of {:?}", hop, whole);
                let length = hop.map_or(0.0, |hop| hop.to_ms - hop.from_ms);
                prop_assert!(length <= ms(network) + 1e-6, "{} ms of {}", length, network);
            }
            prop_assert!(parts.next().is_none());
        }
    }
}
