//! The store with real folders, and recordings of all kinds: flite's voices, readers where the shared recordings are there,
//! noise, silence.

use super::*;
use antiphon_audio::wav;
use antiphon_engine_api::tts::{Consent, CustomVoice, NewVoice, Recording, VoiceError, is_uploaded_id};
use antiphon_types::{Pcm, SampleRate};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::f32::consts::TAU;
use std::path::Path;
use std::time::Duration;

const RATE: SampleRate = SampleRate::HZ_24000;
const SECOND: Duration = Duration::from_secs(1);

fn settings(folder: &Path) -> StoreSettings {
    StoreSettings {
        folder: folder.to_owned(),
        rate: RATE,
        min: SECOND,
        max: 60 * SECOND,
        use_at_most: 10 * SECOND,
        loudness_lufs: None,
        needs_transcript: false,
        max_voices: 4,
        max_bytes: 10 << 20,
        languages: vec!["en".into(), "de".into()],
        sealing: None,
    }
}

/// Some seconds of speech.
fn speech() -> Pcm {
    flite("slt", "The quick brown fox jumps over the lazy dog, and then it sleeps until noon.")
}

fn flite(voice: &str, text: &str) -> Pcm {
    use crate::tts::TtsEngine;
    use antiphon_engine_api::tts::SpeechRequest;
    let mut engine = crate::tts::flite::Flite::open(voice).expect("flite is installed");
    let mut samples = Vec::new();
    let mut rate = RATE;
    let request = SpeechRequest { text: text.into(), voice: voice.into(), ..SpeechRequest::default() };
    let mut sink = |pcm: Pcm| {
        rate = pcm.rate;
        samples.extend(pcm.samples);
        std::ops::ControlFlow::Continue(())
    };
    engine.synthesize(&request, &tokio_util::sync::CancellationToken::new(), &mut sink).expect("spoken");
    Pcm { rate, samples }
}

fn new(name: &str, pcm: Pcm) -> NewVoice {
    NewVoice {
        name: name.into(),
        language: None,
        recording: Recording { pcm },
        transcript: None,
        consent: Consent { statement: "I agree.".into(), received_at: 1_700_000_000 },
        owner: None,
    }
}

fn noise(seconds: usize, level: f32) -> Pcm {
    let mut random = StdRng::seed_from_u64(7);
    let samples = (0..seconds * 24_000).map(|_| (random.random_range(-1.0f32..1.0) * level) as i16).collect();
    Pcm { rate: RATE, samples }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("one").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[track_caller]
fn refused(store: &VoiceStore, voice: NewVoice, field: &str, says: &str) {
    let error = store.add(voice, |_| panic!("an engine gets nothing that was refused")).expect_err("refused");
    let VoiceError::Invalid { field: at, message } = error else { panic!("{error:?}") };
    assert_eq!(at, field, "{message}");
    assert!(message.contains(says), "{message}");
}

#[test]
fn a_voice_that_is_added_is_there_after_a_restart_until_it_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("below/voices");
    let store = VoiceStore::open(settings(&place)).expect("made");
    let mut seen = None;
    let mut wanted = new(" Anna ", speech());
    wanted.transcript = Some("The quick brown fox.".into());
    wanted.owner = Some("key".into());
    wanted.language = Some("de-AT".into());
    let added = store.add(wanted, |reference| {
        seen = Some(reference.clone());
        assert!(store.list().is_empty(), "it is listed once the engine has accepted it");
        Ok(())
    });
    let added = added.expect("added");
    assert!(is_uploaded_id(&added.id) && added.is_uploaded());
    assert_eq!((added.name.as_str(), added.language.as_str(), added.created_at), ("Anna", "de-AT", 1_700_000_000));
    assert_eq!(files(&place), ["json", "txt", "wav"].map(|extension| format!("{}.{extension}", added.id)));
    drop(store);

    let store = VoiceStore::open(settings(&place)).expect("opened again");
    assert_eq!(store.list(), std::slice::from_ref(&added));
    let reference = store.reference(&added.id).expect("there");
    assert_eq!(*reference, seen.expect("accepted"), "what the engine accepted is what it gets later");
    assert_eq!(reference.transcript.as_deref(), Some("The quick brown fox."));
    assert!((reference.samples.len() as u64).abs_diff(added.recording_ms * 24) < 48, "24 kHz");

    store.remove(&added.id).expect("removed");
    assert!(store.list().is_empty() && files(&place).is_empty());
    for gone in [store.remove(&added.id).err(), store.reference(&added.id).err()] {
        assert!(matches!(gone, Some(VoiceError::Unknown(id)) if id == added.id));
    }
    assert!(!reference.samples.is_empty(), "who speaks with it goes on");
}

#[cfg(unix)]
#[test]
fn only_this_user_reads_what_is_uploaded() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("voices");
    let store = VoiceStore::open(settings(&place)).expect("made");
    store.add(new("Anna", speech()), |_| Ok(())).expect("added");
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&place), 0o700);
    for name in files(&place) {
        assert_eq!(mode(&place.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn what_an_engine_does_not_accept_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = VoiceStore::open(settings(folder.path())).expect("made");
    let error = store.add(new("Anna", speech()), |_| Err(VoiceError::Busy("later".into()))).expect_err("refused");
    assert!(matches!(error, VoiceError::Busy(_)));
    assert!(store.list().is_empty() && files(folder.path()).is_empty());
    let panics = || store.add(new("Anna", speech()), |_| panic!("the engine broke"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    store.add(new("Anna", speech()), |_| Ok(())).expect("its name and its place are free again");
}

#[test]
fn a_disk_that_takes_nothing_leaves_no_half_of_a_voice() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = VoiceStore::open(settings(folder.path())).expect("made");
    // A folder where the metadata should go: the recording is written, its metadata cannot be.
    let blocked = store.add(new("Anna", speech()), |reference| {
        std::fs::create_dir(folder.path().join(format!("{}.json", reference.id))).expect("made");
        Ok(())
    });
    assert!(matches!(blocked, Err(VoiceError::Failed(_))), "{blocked:?}");
    assert!(files(folder.path()).iter().all(|name| name.ends_with(".json")), "{:?}", files(folder.path()));
    assert!(store.list().is_empty());
}

#[test]
fn the_operators_voices_are_files_and_bad_ones_are_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("written");
    let good = wav::write(&speech());
    put("anna.wav", &good);
    put("dr. bob.wav", &good);
    put("dr. bob.txt", b" The quick brown fox.\n");
    put("dr. bob.json", br#"{"name": "Doctor Bob", "language": "de"}"#);
    put("empty.wav", b"");
    put("text.wav", b"this is no sound");
    put("silent.wav", &wav::write(&Pcm { rate: RATE, samples: vec![0; 72_000] }));
    put("icelandic.wav", &good);
    put("icelandic.json", br#"{"language": "is"}"#);
    put("broken.wav", &good);
    put("broken.json", b"{");
    put("binary.wav", &good);
    put("binary.txt", b"\xff\xfe");
    put(".hidden.wav", &good);
    put("other.mp3", b"");
    // What is left of an upload that broke off.
    put("voice_00000000000000aa.wav", &good);
    put("voice_00000000000000bb.wav.part", &good);
    std::fs::create_dir(folder.path().join("folder.wav")).expect("made");
    let store = VoiceStore::open(settings(folder.path())).expect("opened");
    let listed: Vec<_> = store.list().into_iter().map(|voice| (voice.id, voice.name, voice.language)).collect();
    let expected = [("anna", "anna", "en"), ("dr. bob", "Doctor Bob", "de")];
    assert_eq!(listed, expected.map(|(id, name, language)| (id.into(), name.into(), language.into())));
    assert_eq!(store.reference("dr. bob").expect("there").transcript.as_deref(), Some("The quick brown fox."));
    assert!(!folder.path().join("voice_00000000000000bb.wav.part").exists());
    assert!(matches!(store.remove("anna"), Err(VoiceError::Fixed(_))) && folder.path().join("anna.wav").exists());
    for name in ["Anna", "doctor bob", "dr. bob"] {
        refused(&store, new(name, speech()), "name", "already");
    }
    std::fs::write(folder.path().join("anna.wav"), b"").expect("written");
    assert!(matches!(store.reference("anna"), Err(VoiceError::Failed(_))), "broken while the hub runs");
}

#[test]
fn a_folder_that_cannot_be_one_is_refused_with_the_setting() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("written");
    let error = VoiceStore::open(settings(&file)).expect_err("no folder").to_string();
    assert!(error.contains("tts.voices_dir"), "{error}");
}

#[test]
fn recordings_that_no_voice_can_be_made_of_are_refused_with_what_is_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = VoiceStore::open(settings(folder.path())).expect("made");
    let pcm = |hz: u32, samples: Vec<i16>| Pcm { rate: SampleRate::new(hz), samples };
    let of = |pcm: Pcm, says: &str| refused(&store, new("Anna", pcm), "audio_sample", says);
    of(pcm(24_000, Vec::new()), "no audio");
    of(pcm(24_000, vec![9_000; 12_000]), "too short: it lasts 0.5 s. A recording of 1 s to 60 s");
    of(pcm(24_000, vec![9_000; 24_000 * 600]), "too long: it lasts 600 s");
    of(pcm(24_000, vec![0; 72_000]), "silent");
    of(noise(5, 80.0), "silent");
    of(noise(5, 10_000.0), "too little speech");
    of(noise(5, 32_000.0), "too little speech");
    let hum = (0..120_000).map(|i| (12_000.0 * (TAU * 50.0 * i as f32 / 24_000.0).sin()) as i16).collect();
    of(pcm(24_000, hum), "too little speech");
    let mut drawn_out = speech();
    drawn_out.samples.extend(vec![0; 16_000 * 30]);
    of(drawn_out, "too little speech");
    let loud = speech();
    of(Pcm { samples: loud.samples.iter().map(|x| x.saturating_mul(12)).collect(), ..loud.clone() }, "clipped");
    let slow = antiphon_audio::convert(&loud.samples, loud.rate, SampleRate::HZ_8000);
    of(pcm(8_000, slow), "8000 Hz, and a voice needs 16000");
    assert!(files(folder.path()).is_empty());
}

#[test]
fn names_and_texts_that_are_none_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = VoiceStore::open(settings(folder.path())).expect("made");
    let long = "x".repeat(65);
    for name in
        ["", " ", "..", ".anna", "anna.", "../anna", "a/b", "a\\b", "a\0b", "a\nb", "voice_00000000000000aa", &long]
    {
        refused(&store, new(name, speech()), "name", "1 to 64 letters");
    }
    let with = |change: fn(&mut NewVoice)| {
        let mut voice = new("Anna", speech());
        change(&mut voice);
        voice
    };
    refused(&store, with(|voice| voice.consent.statement = "  ".into()), "consent", "empty");
    refused(&store, with(|voice| voice.consent.statement = "x".repeat(2_001)), "consent", "2000");
    refused(&store, with(|voice| voice.transcript = Some("x".repeat(2_001))), "ref_text", "2000");
    refused(&store, with(|voice| voice.transcript = Some("a\u{1b}[31m".into())), "ref_text", "control");
    refused(&store, with(|voice| voice.language = Some("fr".into())), "language", "It speaks: en, de");
    refused(&store, with(|voice| voice.language = Some("../en".into())), "language", "'en-US'");
    for name in ["Jürgen", "王芳", "Dr. O'Neil-Smith_2", &"x".repeat(64)] {
        let store = VoiceStore::open(settings(&folder.path().join("of its own"))).expect("made");
        let added = store.add(new(name, speech()), |_| Ok(())).expect("a name");
        store.remove(&added.id).expect("removed");
    }
}

#[test]
fn a_full_store_says_so_and_one_name_is_one_voice_of_a_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = VoiceStore::open(settings(folder.path())).expect("made");
    let of = |name: &str, owner: &str| NewVoice { owner: Some(owner.into()), ..new(name, speech()) };
    store.add(of("Anna", "one"), |_| Ok(())).expect("added");
    refused(&store, of("anna", "one"), "name", "already");
    let inner = |reference: &Reference| {
        refused(&store, of("Bob", "two"), "name", "already");
        assert!(is_uploaded_id(&reference.id));
        Ok(())
    };
    store.add(of("Bob", "two"), inner).expect("a name is taken from the beginning on");
    store.add(of("Anna", "two"), |_| Ok(())).expect("another key's is its own affair");
    store.add(of("Carl", "two"), |_| Ok(())).expect("the fourth");
    let full = store.add(of("Dora", "two"), |_| Ok(())).expect_err("full");
    assert!(matches!(&full, VoiceError::Full(says) if says.contains("tts.max_voices")), "{full}");
    let few_bytes = StoreSettings { max_bytes: 200_000, ..settings(&folder.path().join("small")) };
    let store = VoiceStore::open(few_bytes).expect("made");
    store.add(of("Anna", "one"), |_| Ok(())).expect("fits");
    let full = store.add(of("Bob", "one"), |_| Ok(())).expect_err("full");
    assert!(matches!(&full, VoiceError::Full(says) if says.contains("together")), "{full}");
}

#[test]
fn what_is_longer_than_the_engine_uses_is_cut_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = VoiceStore::open(StoreSettings { use_at_most: 2 * SECOND, ..settings(folder.path()) }).expect("made");
    let added = store.add(new("Anna", speech()), |_| Ok(())).expect("added");
    assert_eq!(added.note.as_deref(), Some("Only the first 2 s of the recording are used."));
    assert_eq!(store.reference(&added.id).expect("there").samples.len(), 48_000);
    assert_eq!(store.limits().used_recording_ms, 2_000);
    // The words of all of it are too many for its beginning.
    let words = NewVoice { transcript: Some("The quick brown fox.".into()), ..new("Bob", speech()) };
    let mut seen = Some(String::new());
    let added = store
        .add(words, |reference| {
            seen.clone_from(&reference.transcript);
            Ok(())
        })
        .expect("added");
    assert_eq!(seen, None);
    assert!(added.note.expect("a note").ends_with("Its words are not used then."));
    assert_eq!(store.reference(&added.id).expect("there").transcript, None);
}

#[test]
fn where_a_model_needs_words_a_voice_without_them_is_refused_or_not_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (with, without) = {
        let store = VoiceStore::open(settings(folder.path())).expect("made");
        let words = NewVoice { transcript: Some("The quick brown fox.".into()), ..new("Anna", speech()) };
        (
            store.add(words, |_| Ok(())).expect("added").id,
            store.add(new("Bob", speech()), |_| Ok(())).expect("added").id,
        )
    };
    let needs = StoreSettings { needs_transcript: true, ..settings(folder.path()) };
    let store = VoiceStore::open(needs).expect("opened");
    let ids: Vec<_> = store.list().into_iter().map(|voice| voice.id).collect();
    assert!(ids.contains(&with) && !ids.contains(&without), "an upload of before has no words: {ids:?}");
    refused(&store, new("Carl", speech()), "ref_text", "needs the words");
    let short = StoreSettings { max: 2 * SECOND, ..settings(folder.path()) };
    assert!(VoiceStore::open(short).expect("opened").list().is_empty(), "they are too long for another model");
}

#[test]
fn references_have_the_loudness_that_was_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let store =
        VoiceStore::open(StoreSettings { loudness_lufs: Some(-27.0), ..settings(folder.path()) }).expect("made");
    let mut levels = Vec::new();
    for (name, share) in [("loud", 1), ("quiet", 8)] {
        let mut pcm = speech();
        pcm.samples.iter_mut().for_each(|sample| *sample /= share);
        let added = store.add(new(name, pcm), |_| Ok(())).expect("added");
        let samples = store.reference(&added.id).expect("there").samples.clone();
        let power = samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / samples.len() as f64;
        levels.push(10.0 * power.log10());
    }
    assert!((levels[0] - levels[1]).abs() < 0.2, "{levels:?}");
    // LUFS weighs and gates; speech is some decibels off its plain level.
    assert!((-35.0..-24.0).contains(&levels[0]), "{levels:?}");
}

#[test]
fn float_files_with_nan_and_two_channels_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = speech();
    let spec = hound::WavSpec {
        channels: 2,
        sample_rate: good.rate.hz(),
        bits_per_sample: 32,
        sample_format: hound::SampleFormat::Float,
    };
    let write = |name: &str, sample: &dyn Fn(usize, f32) -> [f32; 2]| {
        let mut writer = hound::WavWriter::create(folder.path().join(name), spec).expect("made");
        for (i, x) in good.samples.iter().enumerate() {
            for channel in sample(i, f32::from(*x) / 32_768.0) {
                writer.write_sample(channel).expect("written");
            }
        }
        writer.finalize().expect("written");
    };
    write("stereo.wav", &|_, x| [x, x]);
    write("one side.wav", &|_, x| [x, 0.0]);
    write("some nan.wav", &|i, x| if i % 1_000 == 0 { [f32::NAN, f32::INFINITY] } else { [x, x] });
    write("all nan.wav", &|_, _| [f32::NAN; 2]);
    let store = VoiceStore::open(settings(folder.path())).expect("opened");
    let ids: Vec<_> = store.list().into_iter().map(|voice| voice.id).collect();
    assert_eq!(ids, ["one side", "some nan", "stereo"]);
    for id in ids {
        let reference = store.reference(&id).expect("there");
        assert!(reference.samples.iter().all(|sample| sample.is_finite() && sample.abs() <= 1.0), "{id}");
    }
}

#[test]
fn readers_and_voices_are_speech() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = VoiceStore::open(StoreSettings { max_voices: 1_000, max_bytes: 1 << 30, ..settings(folder.path()) });
    let store = store.expect("made");
    let mut recordings: Vec<(String, Pcm)> = ["slt", "kal16", "rms", "awb"]
        .map(|voice| (voice.to_owned(), flite(voice, "Good morning. How are you today, and what can I do for you?")))
        .into();
    let readers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/speech");
    for entry in std::fs::read_dir(readers).expect("the clips") {
        let path = entry.expect("one").path();
        if path.extension().is_some_and(|extension| extension == "flac") {
            let bytes = std::fs::read(&path).expect("read");
            let pcm = antiphon_audio::decode::read(bytes.into(), 60 * SECOND).expect("decoded");
            recordings.push((path.file_stem().expect("a name").to_string_lossy().into_owned(), pcm));
        }
    }
    assert!(recordings.len() > 20, "{}", recordings.len());
    for (name, pcm) in recordings {
        if pcm.duration() >= SECOND {
            let added: Result<CustomVoice, _> = store.add(new(&name, pcm), |_| Ok(()));
            assert!(added.is_ok(), "{name}: {added:?}");
        }
    }
}
